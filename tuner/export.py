"""`python -m tuner.export`: a trained model for others, as a model folder and as a program.

python -m tuner.export run=results/imagenet_small to=my_model
"""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from tuner import cli
from tuner.errors import RunError, did_you_mean
from tuner.files import not_written, sync_folder, write_bytes, write_json
from tuner.settings.places import find_model_folder, new_folder
from tuner.settings.sections import Text
from tuner.settings.wording import listed, shown

if TYPE_CHECKING:
    from tuner.model_folder import ModelFolder

FORMATS = ("safetensors", "pt2")
PROGRAM = "model.pt2"


def _formats(text: str) -> str:
    for name in text.split(","):
        if name == "onnx":
            raise ValueError(f"onnx comes with a later version; use {','.join(FORMATS)}")
        if name not in FORMATS:
            raise ValueError(
                f"no such format ({shown(name)}); use {listed(FORMATS)}, or both with a comma "
                f"between{did_you_mean(name, FORMATS)}"
            )
    return text


class ExportKeys(cli.Keys):
    """Writes a trained model as a folder for others, and as a program that needs torch alone."""

    takes_settings: ClassVar[bool] = False

    run: Text = Field(description="folder of a search or a retrain, or a model folder")
    to: Text = Field(description="folder to write, which is not there yet")
    format: Annotated[Text, AfterValidator(_formats)] = Field(
        default="safetensors,pt2",
        description="safetensors: model.safetensors, classes.json, preprocess.json and best.yaml, "
        "which are always written; pt2: model.pt2 as well, a torch.export program of decoded "
        "images, with a comma between",
    )


def main(keys: ExportKeys, overrides: list[str]) -> None:
    """Writes the folder, whole or not at all."""
    source, to = find_model_folder("run", keys.run), new_folder("to", keys.to)

    from tuner.model_folder import load_model_folder
    from tuner.reporting.terminal import say

    loaded = load_model_folder(source)
    unfinished = to.with_name(f".{to.name}.unfinished")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        write_folder(unfinished, loaded, keys.format.split(","))
        unfinished.rename(to)
        sync_folder(to.parent)
    except OSError as error:
        raise RunError(not_written(to.parent, f"{to.name} cannot be written", error)) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    files = sorted(path.name for path in to.iterdir())
    say(f"model folder: {keys.to} ({', '.join(files)})")


def write_folder(folder: Path, loaded: "ModelFolder", formats: list[str]) -> None:
    """Writes the model folder, and the program where it is asked for.

    Raises:
        RunError: torch cannot make a program of this model.
    """
    from tuner.handover import write_model_folder

    write_model_folder(folder, loaded.weights, loaded.winner, loaded.config)
    if "pt2" in formats:
        write_program(folder, loaded)


def write_program(folder: Path, loaded: "ModelFolder") -> None:
    """Writes `model.pt2`, and into `preprocess.json` what goes in and what comes out."""
    from tuner.handover import describe_preprocessing
    from tuner.training.program import export_program

    described = describe_preprocessing(loaded.config)
    resize_px, crop_px = described["resize_px"], described["crop_px"]
    program = export_program(loaded.model, resize_px=resize_px, crop_px=crop_px)
    write_bytes(folder / PROGRAM, program)
    write_json(folder / "preprocess.json", described | {PROGRAM: describe_program(loaded)})


def describe_program(loaded: "ModelFolder") -> dict[str, Any]:
    """Returns what the program takes and gives."""
    resize_px, num_classes = loaded.preprocessing["resize_px"], len(loaded.classes)
    return {
        "input": f"uint8 (n, {resize_px}, {resize_px}, 3): images cut to their centre square and "
        "resized to resize_px; it cuts crop_px, scales and normalises by itself",
        "output": f"float32 (n, {num_classes}): logits in the order of classes.json",
    }


if __name__ == "__main__":
    sys.exit(cli.run("export", ExportKeys, main))
