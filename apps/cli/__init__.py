"""The commands of the apps. `capgrade` finds this table by its name, as the product imports no
app."""

from collections.abc import Callable

from capgrade.apps.cli import audit, explore, judge, leaderboard, report

_JUDGE = "--endpoint http://localhost:8000/v1 --judge-model llama-3.1-8b"
# Each with the line that its help opens with, as the product's are.
COMMANDS: dict[str, tuple[Callable[..., None], str]] = {
    "report": (report.report, "--data data --out report.html"),
    "leaderboard": (leaderboard.leaderboard, "entries --captions captions --out board.html"),
    "audit": (audit.audit, "--captions captions --relevance relevance --out audit.html"),
    "explore": (explore.explore, "--dataset dataset"),
    "explore sample": (explore.sample, "--dataset dataset --out reviews"),
    "explore export": (explore.export, "reviews --out judgements.csv"),
    "agree raters": (explore.raters, "reviews"),
    "judge": (
        judge.judge,
        f"--captions captions --pairs cxc_sits_test.csv {_JUDGE} --out judged.csv",
    ),
    "regrade": (
        audit.regrade,
        f"--captions captions --similarity sims.npy {_JUDGE} --budget 500 --out regraded",
    ),
}
# Those that keep finished work when they are stopped, and go on with it.
RESUMABLE = {"judge", "regrade"}
