"""Says what happens, one JSON object a line, for programs."""

from __future__ import annotations

import json

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: lines
type: stdout
short_description: One JSON object a line
description:
  - Says when a device begins with a task, and what became of it, for programs that show progress.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "trivet.rack.lines"

    def _say(self, event, **what):
        print(json.dumps({"event": event, **{k: v for k, v in what.items() if v}}), flush=True)

    def _done(self, event, result, **what):
        task = result._task
        self._say(event, device=result._host.get_name(), role=self._role(task), task=task.get_name().removeprefix(f"{task._role} : ") if task._role else task.get_name(), **what)

    @staticmethod
    def _role(task):
        return task._role.get_name().rpartition(".")[2] if task._role else ""

    def v2_runner_on_start(self, host, task):
        self._say("begin", device=host.get_name(), role=self._role(task), task=task.get_name())

    def v2_runner_on_ok(self, result):
        note = result._result.get("msg") if result._task.action.endswith("debug") else ""
        self._done("changed" if result._result.get("changed") else "ok", result, note=str(note or ""))

    def v2_runner_on_skipped(self, result):
        self._done("skipped", result)

    def v2_runner_on_failed(self, result, ignore_errors=False):
        self._done("ignored" if ignore_errors else "failed", result, why=self._why(result))

    def v2_runner_on_unreachable(self, result):
        self._done("unreachable", result, why=self._why(result))

    @staticmethod
    def _why(result):
        said = result._result
        if said.get("censored"):
            return "it is not shown, for it may hold a secret"
        failed = [r for r in said.get("results", []) if isinstance(r, dict) and r.get("failed")]
        said = failed[0] if failed else said
        parts = [said.get("msg"), said.get("stderr") or said.get("module_stderr"), said.get("stdout") if said.get("rc") else ""]
        return "\n".join(str(p).strip() for p in parts if p)

    def v2_playbook_on_stats(self, stats):
        self._say("end", devices={h: stats.summarize(h) for h in stats.processed} or {"": {}})
