"""The size of the interface of a task."""

from s2s.tasks.base import Task


def test_task_has_at_most_ten_methods():
    assert len([name for name, value in vars(Task).items() if callable(value) and not name.startswith("_")]) <= 10
