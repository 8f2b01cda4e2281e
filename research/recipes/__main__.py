"""`python -m research.recipes`: the papers' tables that can be reproduced."""

from capgrade.pipelines.options import AsJson, print_result
from research.command import run_command
from research.reproduce.recipe import list_recipes


def recipes(as_json: AsJson = False) -> None:
    """Every recipe in a line: its table, what it needs, and what was verified."""
    found = list_recipes()
    width = max(map(len, found))
    lines = [
        f"{name:{width}}  {about['paper']}, table {about['table']}; needs"
        f" {', '.join(about['needs'])}; verified: {about['verified']}"
        + (f"; {about['network']}" if about["network"] else "")
        for name, about in found.items()
    ]
    print_result(found, as_json, "\n".join(lines))


def main() -> None:
    """List the recipes, as the command line asks."""
    run_command("research.recipes", recipes, "")


if __name__ == "__main__":
    main()
