"""What belongs to a session is told from what only looks at it."""

import subprocess
import sys
from pathlib import Path

from tuner.raytune.reaper import users


def test_who_has_the_login_or_writes_there_belongs_and_who_reads_there_does_not(
    tmp_path: Path,
) -> None:
    real, folder = tmp_path / "real", tmp_path / "linked"
    real.mkdir()
    folder.symlink_to(real)
    (folder / "log").touch()
    login = {"RAY_AUTH_TOKEN_PATH": f"{folder}/auth_token"}
    another = {"RAY_AUTH_TOKEN_PATH": f"{folder}-2/auth_token"}
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"file = open({str(path)!r}, {mode!r}); print(flush=True); input()",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for path, mode, environment in [
            (folder / "log", "r", login),
            (folder / "log", "a", {}),
            (folder / "log", "r", another),
            (tmp_path / "log", "w", {}),
        ]
    ]
    for process in started:
        assert process.stdout is not None
        process.stdout.readline()

    found = users([folder])

    assert found & {process.pid for process in started} == {each.pid for each in started[:2]}
    for process in started:
        process.kill()
        process.communicate()
