"""Results of `trivet bench run`: JSON Lines, a header and samples (docs/results.md)."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Union

from ._errors import TrivetError

_SCHEMA = 1


class Results:
    """What a file of results holds."""

    def __init__(self, file: Path, header: Dict[str, Any], samples: List[Dict[str, Any]]) -> None:
        self.file, self.header = file, header
        self.samples = samples  #: those that count: the last of each run and probe, without warm-ups

    def rows(self) -> Iterator[Dict[str, Any]]:
        """A row for each value that was measured: factors, probe, metric, unit, value, labels, verdict."""
        for s in self.samples:
            about = {"run": s.get("run"), "cell": s.get("cell"), "block": s.get("block"), "repetition": s.get("repetition"),
                     "probe": s.get("probe"), "kind": s.get("kind"), "started": s.get("started"),
                     "verdict": (s.get("verdict") or {}).get("level"), **(s.get("factors") or {})}
            for m in s.get("measurements") or []:
                at = m.get("at") or []
                for i, value in enumerate(m.get("values") or []):
                    yield {**about, "metric": m.get("metric"), "unit": m.get("unit"), **(m.get("labels") or {}),
                           "at": at[i] if i < len(at) else None, "value": value}
                if m.get("of"):
                    yield {**about, "metric": m.get("metric"), "unit": m.get("unit"), **(m.get("labels") or {}),
                           "at": None, "value": m.get("count", 0) / m["of"]}

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        try:
            import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError:
            raise TrivetError("pandas is not installed:  pip install pandas  (rows() does without)") from None
        return pandas.DataFrame(list(self.rows()))

    def __repr__(self) -> str:
        return "<Results %s: %d samples>" % (self.file, len(self.samples))


def read_results(path: Union[str, "os.PathLike[str]"]) -> Results:
    """Read a file of results, or the only one in a directory."""
    file = Path(path)
    if file.is_dir():
        found = sorted(file.glob("*.jsonl"))
        if len(found) != 1:
            raise TrivetError("%s holds %s; name a file" % (file, "%d files of results" % len(found) if found else "no file of results (*.jsonl)"))
        file = found[0]
    header: Dict[str, Any] = {}
    last: Dict[Any, Dict[str, Any]] = {}
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as e:
        raise TrivetError("%s: %s" % (file, e.strerror)) from None
    lines = text.split("\n")[:-1]  # what does not end in a line end was interrupted
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            kind = record["record"]
        except (ValueError, TypeError, KeyError):
            raise TrivetError("%s:%d: this is no record of trivet bench" % (file, number)) from None
        if kind == "header":
            header = record
            if record.get("schema") != _SCHEMA:
                raise TrivetError("%s: schema %s; this package reads %d" % (file, record.get("schema"), _SCHEMA))
        elif kind == "sample" and not record.get("warm_up"):
            last[record.get("run"), record.get("probe")] = record
    if not header:
        raise TrivetError("%s: it does not begin with a header of trivet bench" % file)
    return Results(file, header, list(last.values()))
