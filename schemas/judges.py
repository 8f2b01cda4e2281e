"""Who judged the pairs that `agree` compares measures with: what stands beside its figures wherever they are shown."""

from __future__ import annotations

PEOPLE, TRUTH, VALUES = "people", "truth", "values"
TITLES = {
    PEOPLE: "Agreement with human judgements",
    TRUTH: "Agreement with the truth of the scenes",
    VALUES: "Agreement with another matrix",
}
SAID = {
    PEOPLE: "scores that people gave",
    TRUTH: "the true relevance of generated scenes, which no person judged",
    VALUES: "values that another program computed, which no person judged",
}
