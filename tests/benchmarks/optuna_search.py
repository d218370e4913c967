"""The search that a competent user writes from the documentation of Optuna and PyTorch.

    python tests/benchmarks/optuna_search.py images=IMAGES output=OUTPUT epochs=9

Two processes work on one study in a journal file, without an end. IMAGES, the other keys and the
reports are as for `stock_search.py`; `real_search.py` compares the two with ours.
"""

import sys
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import optuna
from optuna.pruners import SuccessiveHalvingPruner
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from slot_times import SLOTS
from stock_training import BATCH_SIZES, LABEL_SMOOTHING, LR, WEIGHT_DECAY, Setup, train_epochs


def main() -> None:
    setup = Setup.from_arguments(sys.argv[1:])
    setup.prepare()
    open_study(setup, setup.seed)
    spawn = get_context("spawn")
    workers = [spawn.Process(target=work, args=(setup, number)) for number in range(SLOTS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not any(worker.exitcode for worker in workers), workers


def work(setup: Setup, number: int) -> None:
    """Takes trials from the study; two workers of one seed would propose the same."""
    study = open_study(setup, SLOTS * setup.seed + number)
    study.optimize(lambda trial: objective(trial, setup))


def open_study(setup: Setup, seed: int) -> optuna.Study:
    journal = JournalFileBackend(str(Path(setup.output) / "study.journal"))
    return optuna.create_study(
        study_name="stock",
        storage=JournalStorage(journal),
        direction="maximize",
        sampler=TPESampler(seed=seed),
        pruner=SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
        load_if_exists=True,
    )


def objective(trial: optuna.Trial, setup: Setup) -> float:
    settings = {
        "lr": trial.suggest_float("lr", *LR, log=True),
        "batch_size": trial.suggest_categorical("batch_size", BATCH_SIZES),
        "weight_decay": trial.suggest_float("weight_decay", *WEIGHT_DECAY, log=True),
        "label_smoothing": trial.suggest_float("label_smoothing", *LABEL_SMOOTHING),
    }
    top1 = 0.0
    with closing(train_epochs(settings, setup)) as reports:
        for epoch, (report, _) in enumerate(reports, 1):
            top1 = report["top1"]
            trial.report(top1, epoch)
            if epoch < setup.epochs and trial.should_prune():
                raise optuna.TrialPruned
    return top1


if __name__ == "__main__":
    main()
