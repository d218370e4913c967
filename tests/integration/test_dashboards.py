"""What a search shows of itself: its study in optuna-dashboard, its run in Ray's dashboard."""

import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from ray.thirdparty_files import psutil

from tests.integration.conftest import Command
from tests.unit.study.conftest import SETTINGS, open_record
from tuner.raytune.metrics import DESCRIPTIONS
from tuner.study.record import JOURNAL_NAME, Record
from tuner.training.result import EpochResult

LOOPBACK = {"127.0.0.1", "::ffff:127.0.0.1"}


def wait_for(is_so: Callable[[], Any]) -> Any:
    """Return what is no longer false, looked at again and again for a minute."""
    deadline = time.monotonic() + 60
    while not (seen := is_so()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return seen


def listening(process: psutil.Process) -> list[tuple[str, int]]:
    """Return the addresses and ports that a process and its children listen on."""
    return [
        (connection.laddr.ip, connection.laddr.port)
        for each in [process, *process.children(recursive=True)]
        for connection in each.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]


class Server:
    """The API of a running optuna-dashboard."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/api"

    def get(self, path: str) -> Any:
        with urlopen(f"{self.url}/{path}") as answer:
            return json.load(answer)

    def put(self, path: str, body: Mapping[str, Any]) -> int:
        headers = {"Content-Type": "application/json"}
        data = json.dumps(body).encode()
        with urlopen(Request(f"{self.url}/{path}", data, headers, method="PUT")) as answer:
            return int(answer.status)

    def trials(self, study_id: int) -> list[dict[str, Any]]:
        return [
            {
                "state": trial["state"],
                "params": {each["name"]: each["param_external_value"] for each in trial["params"]},
                "values": trial.get("values"),
                "steps": {each["step"]: each["value"] for each in trial["intermediate_values"]},
                "end": attribute(trial, "end"),
            }
            for trial in self.get(f"studies/{study_id}")["trials"]
        ]


def attribute(shown: Mapping[str, Any], key: str) -> Any:
    """Return a user attribute of a study or trial, None where there is none."""
    texts = {each["key"]: each["value"] for each in shown["user_attrs"]}
    return json.loads(texts[key]) if key in texts else None


@contextmanager
def optuna_dashboard(journal: Path) -> Iterator[Server]:
    """Start the server as a user does, on a free port."""
    program = Path(sys.executable).with_name("optuna-dashboard")
    with Popen([program, journal, "--port", "0"], stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            ((ip, port),) = wait_for(lambda: listening(psutil.Process(process.pid)))
            assert ip in LOOPBACK
            yield Server(port)
        finally:
            process.terminate()


def end_in_every_state(record: Record) -> None:
    """Record a trial of each state; the last one runs."""
    for _ in range(5):
        record.add_trial(SETTINGS)
    for number, top1 in ((0, 0.25), (1, 0.125), (4, 0.2)):
        record.add_report(number, {"samples_seen": 1024, "nominal_samples": 1000, "top1": top1})
    record.add_report(0, {"samples_seen": 3072, "nominal_samples": 3000, "top1": 0.5})
    record.end(0, "complete")
    record.end(1, "stopped")
    record.end(2, "failed", "diverged", "the loss is nan")
    record.end(3, "infeasible", "out_of_memory", "at 32 images")


def test_optuna_dashboard_shows_names_states_and_units(hostile_tmp_path: Path) -> None:
    record = open_record(hostile_tmp_path)
    end_in_every_state(record)
    confirm = record.open_confirm()
    confirm.add_trial({**SETTINGS, "train.seed": 1})

    with optuna_dashboard(hostile_tmp_path / JOURNAL_NAME) as server:
        studies = server.get("studies")["study_summaries"]
        details = [server.get(f"studies/{study['study_id']}") for study in studies]
        trials, runs = (server.trials(study["study_id"]) for study in studies)

    assert [study["study_name"] for study in studies] == ["small", "small.confirm"]
    for detail in details:
        assert detail["directions"] == ["maximize"]
        assert detail["objective_names"] == ["top1"]
        units = attribute(detail, "units")
        assert (units["step"], units["top1"]) == ("training images seen", "fraction of 1")
    assert [trial["state"] for trial in trials] == [
        "Complete",
        "Pruned",
        "Fail",
        "Pruned",
        "Running",
    ]
    assert [trial["end"] and trial["end"]["state"] for trial in trials] == [
        "complete",
        "stopped",
        "failed",
        "infeasible",
        None,
    ]
    assert trials[0]["values"] == [0.5]
    assert [trial["steps"] for trial in trials] == [
        {1000: 0.25, 3000: 0.5},
        {1000: 0.125},
        {},
        {},
        {1000: 0.2},
    ]
    assert trials[2]["end"]["reason"] == "diverged"
    assert trials[2]["end"]["message"] == "the loss is nan"
    assert trials[3]["end"]["reason"] == "out_of_memory"
    assert all(trial["params"] == {"optim.lr": "0.1", "train.batch_size": "64"} for trial in trials)
    assert [(run["state"], run["params"]["train.seed"]) for run in runs] == [("Running", "1")]


def test_a_search_goes_on_while_optuna_dashboard_shows_it_and_takes_notes(
    hostile_tmp_path: Path,
) -> None:
    record = open_record(hostile_tmp_path)
    end_in_every_state(record)

    with optuna_dashboard(hostile_tmp_path / JOURNAL_NAME) as server:
        assert len(server.trials(0)) == 5
        record.add_report(4, {"samples_seen": 3072, "nominal_samples": 3000, "top1": 0.75})
        assert server.put("studies/0/note", {"version": 1, "body": "too hot"}) == 204
        record.add_trial({"optim.lr": 0.01})
        assert server.put("studies/0/4/note", {"version": 1, "body": "my favourite"}) == 204
        record.end(4, "complete")
        shown = wait_for(lambda: (found := server.trials(0))[5:] and found)
        notes = server.get("studies/0")
        confirm = record.open_confirm()
        confirm.add_trial({**SETTINGS, "train.seed": 1})
        assert len(server.get("studies")["study_summaries"]) == 2

    assert (shown[4]["state"], shown[4]["values"]) == ("Complete", [0.75])
    assert shown[5]["params"] == {"optim.lr": "0.01"}
    assert notes["note"]["body"] == "too hot"
    assert notes["trials"][4]["note"]["body"] == "my favourite"
    again = open_record(hostile_tmp_path)
    assert list(again.trials) == list(record.trials)
    assert list(again.open_confirm().trials) == list(confirm.trials)


@pytest.fixture
def endless_search(command: Command, monkeypatch: pytest.MonkeyPatch) -> Iterator[Popen[str]]:
    """Give a running search with Ray's dashboard, whose first trial goes on and on."""
    monkeypatch.setenv("RAY_metrics_report_interval_ms", "1000")  # its least; 10 s by default
    with command.start(
        "search",
        "space=tiny.yaml",
        "data.root=images",
        "resources.dashboard=true",
        "search.scheduler=none",
        "train.epochs=100000",
    ) as process:
        yield process
        process.kill()


def test_rays_dashboard_is_told_of_and_its_token_never_is(
    command: Command, endless_search: Popen[str]
) -> None:
    assert endless_search.stdout is not None
    told: list[str] = []
    while not told or "metrics for Prometheus" not in told[-1]:
        told.append(endless_search.stdout.readline())
        assert told[-1], endless_search.communicate()
    url, told_path, metrics_url = addresses("".join(told[-3:]))
    token_path = command.folder / told_path
    token = token_path.read_text()

    assert token_path.stat().st_mode & 0o777 == 0o600
    assert token_path.parent.stat().st_mode & 0o777 == 0o700
    assert answer_to(f"{url}/api/version") == 401
    assert answer_to(f"{url}/api/version", token) == 200
    figures = wait_for(lambda: all_figures_of_the_first_trial(metrics_url))
    assert {ip for ip, _ in listening(psutil.Process(endless_search.pid))} <= LOOPBACK

    endless_search.send_signal(signal.SIGINT)
    out, err = endless_search.communicate(timeout=60)

    assert endless_search.returncode == 130
    assert 0 <= figures["top1"] <= figures["top5"] <= 1
    assert token not in "".join(told) + out + err
    written = [path for path in command.folder.rglob("*") if path.is_file()]
    assert not [path for path in written if token.encode() in path.read_bytes()]
    assert not token_path.parent.exists()


def addresses(lines: str) -> tuple[str, ...]:
    """Return what the three lines on the dashboard name: it, its token's file, the metrics."""
    found = re.fullmatch(
        r"dashboard (http://127\.0\.0\.1:\d+), on this machine alone\n"
        r" {10}its token: cat (\S+/\.ray-\w+/auth_token)\n"
        r" {10}metrics for Prometheus: (http://127\.0\.0\.1:\d+/metrics)\n",
        lines,
    )
    assert found, lines
    return found.groups()


def answer_to(url: str, token: str | None = None) -> int:
    """Return the HTTP status."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(url, headers=headers)) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def all_figures_of_the_first_trial(metrics_url: str) -> dict[str, float] | None:
    """Return the values that are served now; None unless they are all there."""
    with urlopen(metrics_url) as answer:
        text = answer.read().decode()
    tags = r'(?=.*[,{]stage="search")(?=.*[,{]trial="0")'
    found = dict(re.findall(rf"^ray_tuner_(\w+)(?=\{{){tags}.* (\S+)$", text, re.MULTILINE))
    if found.keys() < DESCRIPTIONS.keys():
        return None
    return {name: float(found[name]) for name in DESCRIPTIONS}


def test_every_metric_is_a_figure_of_a_report() -> None:
    assert EpochResult.__dataclass_fields__.keys() >= DESCRIPTIONS.keys()
