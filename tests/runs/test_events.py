"""The event log: what is written is read back, whatever became of the writer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workbench.runs import events
from workbench.runs.events import EventLog, Finished, Interval, Phase, Stage, Tail


def test_what_is_written_is_read_back_in_order(tmp_path: Path) -> None:
    log = EventLog(tmp_path / events.LOG_FILE)
    written = [Phase(t_s=0.0, phase="build"), Stage(t_s=1.5, name="interpret", seconds=1.25), Finished(t_s=2.0)]
    for event in written:
        log.write(event)
    assert events.read(tmp_path) == written


def test_a_torn_last_line_is_left_out_and_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / events.LOG_FILE
    whole, torn = events.encode(Phase(t_s=0.0, phase="build")), events.encode(Finished(t_s=1.0))
    path.write_bytes(whole + torn[:9])
    tail = Tail(path)
    assert tail.read() == [Phase(t_s=0.0, phase="build")]
    assert tail.read() == []
    path.write_bytes(whole + torn)
    assert tail.read() == [Finished(t_s=1.0)]


def test_a_record_added_after_a_torn_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / events.LOG_FILE
    path.write_bytes(events.encode(Phase(t_s=0.0, phase="build")) + b'{"type":"pha')
    events.append(path, Finished(t_s=1.0))
    assert events.read(tmp_path) == [Phase(t_s=0.0, phase="build"), Finished(t_s=1.0)]


@pytest.mark.parametrize(
    "line", [b"", b"null", b"[]", b"\xff\xfe", b'{"type":"of a later version"}', b'{"type":"phase"}', b'{"type":[]}']
)
def test_lines_that_are_no_records_of_this_version_are_passed_over(tmp_path: Path, line: bytes) -> None:
    (tmp_path / events.LOG_FILE).write_bytes(line + b"\n" + events.encode(Finished(t_s=1.0)))
    assert events.read(tmp_path) == [Finished(t_s=1.0)]


def test_fields_of_a_later_version_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / events.LOG_FILE).write_bytes(b'{"type":"phase","t_s":1.0,"phase":"build","new":3}\n')
    assert events.read(tmp_path) == [Phase(t_s=1.0, phase="build")]


def test_a_run_that_wrote_nothing_has_no_events(tmp_path: Path) -> None:
    assert events.read(tmp_path) == []


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    EventLog(tmp_path / events.LOG_FILE)
    with pytest.raises(FileExistsError):
        EventLog(tmp_path / events.LOG_FILE)


def test_a_writer_without_space_says_so_and_ends(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 2)
        log = EventLog(tmp_path / events.LOG_FILE)
        log._file = os.open("/dev/full", os.O_WRONLY)
        log.write(Finished(t_s=0.0))
        os._exit(0)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == events.EXIT_LOG_UNWRITABLE
    assert b"No space left on device" in os.read(reading, 1000)
    os.close(reading)


def test_each_moment_goes_to_the_innermost_stage() -> None:
    stages, attributed = events.attribute(
        [Interval("forward", 1.0, 5.0), Interval("fuse", 2.0, 3.0), Interval("fuse", 3.5, 4.0)], 0.0, 8.0
    )
    assert stages == [
        {"name": "forward", "seconds": 2.5},
        {"name": "fuse", "seconds": 1.5},
        {"name": events.UNATTRIBUTED, "seconds": 4.0},
    ]
    assert attributed == 0.5


def test_what_lies_outside_the_window_does_not_count() -> None:
    stages, attributed = events.attribute([Interval("a", -1.0, 1.0), Interval("b", 9.0, 10.0)], 0.0, 4.0)
    assert stages == [{"name": "a", "seconds": 1.0}, {"name": events.UNATTRIBUTED, "seconds": 3.0}]
    assert attributed == 0.25


def test_the_parts_of_a_fusion_are_told_apart() -> None:
    parts = {"definition": 1.0, "Dynamo": 2.0, "first launch": 0.5}
    end = events.FusionEnd(t_s=10.0, name="F0", index=0, count=1, seconds=3.5, parts=parts)
    assert events.intervals_of(end) == [
        Interval("fusions: definition", 6.5, 7.5),
        Interval("fusions: Dynamo", 7.5, 9.5),
        Interval("fusions: first launch", 9.5, 10.0),
    ]


def test_no_time_at_all_is_attributed_to_nothing() -> None:
    assert events.attribute([], 1.0, 1.0) == ([], 0.0)


def test_the_rest_of_a_stretch_is_what_nothing_else_covers(tmp_path: Path) -> None:
    recorder = events.Recorder(EventLog(tmp_path / events.LOG_FILE))
    recorder.intervals = [Interval("a", 1.0, 2.0), Interval("b", 3.0, 9.0)]
    recorder.rest_of("rest", 0.0, 4.0)
    assert recorder.intervals[2:] == [Interval("rest", 0.0, 1.0), Interval("rest", 2.0, 3.0)]
    assert [event.seconds for event in events.read(tmp_path) if isinstance(event, Stage)] == [1.0, 1.0]
