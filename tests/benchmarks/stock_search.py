"""The search that a competent user writes from the documentation of Ray Tune, Optuna and PyTorch.

    python tests/benchmarks/stock_search.py images=IMAGES output=OUTPUT trials=24 epochs=9

IMAGES holds `train/` and `val/`. The training is that of `stock_training.py`, where all keys are;
every trial's reports are in a file of OUTPUT/reports/. `stock_ray.py` and `real_search.py` compare
it with ours.
"""

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from slot_times import SLOTS
from stock_training import BATCH_SIZES, LABEL_SMOOTHING, LR, WEIGHT_DECAY, Setup, train_epochs


def main() -> None:
    setup = Setup.from_arguments(sys.argv[1:])
    setup.prepare()
    ray.init(num_cpus=SLOTS)
    try:
        results = build_tuner(setup).fit()
        assert not results.num_errors, results.errors
    finally:
        ray.shutdown()


def build_tuner(setup: Setup) -> tune.Tuner:
    return tune.Tuner(
        tune.with_resources(train, {"cpu": 1}),
        param_space={
            "lr": tune.loguniform(*LR),
            "batch_size": tune.choice(list(BATCH_SIZES)),
            "weight_decay": tune.loguniform(*WEIGHT_DECAY),
            "label_smoothing": tune.uniform(*LABEL_SMOOTHING),
            "setup": asdict(setup),
        },
        tune_config=tune.TuneConfig(
            search_alg=OptunaSearch(metric="top1", mode="max", seed=setup.seed),
            scheduler=ASHAScheduler(
                time_attr="training_iteration",
                metric="top1",
                mode="max",
                max_t=setup.epochs,
                grace_period=1,
                reduction_factor=3,
            ),
            num_samples=setup.trials,
            max_concurrent_trials=SLOTS,
        ),
        run_config=tune.RunConfig(name="stock", storage_path=str(Path(setup.output) / "ray")),
    )


def train(config: dict[str, Any]) -> None:
    """Trains one trial, with a report and a checkpoint after every epoch."""
    for report, weights in train_epochs(config, Setup(**config["setup"])):
        with tempfile.TemporaryDirectory() as folder:
            torch.save(weights, Path(folder) / "checkpoint.pt")
            tune.report(report, checkpoint=tune.Checkpoint.from_directory(folder))


if __name__ == "__main__":
    main()
