"""The event log: all complete events can be read, even if the writer was killed or the file is damaged."""

from __future__ import annotations

import gc
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.runs.log import compile_stages, event_log, events
from workbench.runs.log.compile_stages import Interval
from workbench.runs.log.event_log import EventLog, Tail
from workbench.runs.log.events import Finished, Phase, Stage


def test_written_events_are_read_back_in_order(tmp_path: Path) -> None:
    log = EventLog(tmp_path / event_log.LOG_FILE)
    written = [Phase(t_s=0.0, phase="build"), Stage(t_s=1.5, name="interpret", seconds=1.25), Finished(t_s=2.0)]
    for event in written:
        log.write(event)
    assert event_log.read_events(tmp_path) == written


def test_an_incomplete_last_line_is_read_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / event_log.LOG_FILE
    whole, torn = event_log.encode(Phase(t_s=0.0, phase="build")), event_log.encode(Finished(t_s=1.0))
    path.write_bytes(whole + torn[:9])
    tail = Tail(path)
    assert tail.read() == [Phase(t_s=0.0, phase="build")]
    assert tail.read() == []
    path.write_bytes(whole + torn)
    assert tail.read() == [Finished(t_s=1.0)]


def test_an_event_added_after_an_incomplete_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / event_log.LOG_FILE
    path.write_bytes(event_log.encode(Phase(t_s=0.0, phase="build")) + b'{"type":"pha')
    event_log.append(path, Finished(t_s=1.0))
    assert event_log.read_events(tmp_path) == [Phase(t_s=0.0, phase="build"), Finished(t_s=1.0)]


BROKEN_LINES = {
    "is empty": b"",
    "is null": b"null",
    "is a list": b"[]",
    "is not UTF-8": b"\xff\xfe",
    "lacks its fields": b'{"type":"phase"}',
    "has a list for a type": b'{"type":[]}',
    "is nested deeply": b"[" * 100_000,
    "is nested deeply in a field": b'{"type":"environment","t_s":0,"versions":{},"machine":' + b'{"a":' * 100_000,
    "has a text for a time": b'{"type":"phase","t_s":"1","phase":"build"}',
    "has NaN for a time": b'{"type":"phase","t_s":NaN,"phase":"build"}',
    "has a number for a name": b'{"type":"phase","t_s":1,"phase":1}',
    "has half of a surrogate pair": b'{"type":"phase","t_s":1,"phase":"\\ud800"}',
    "has stages without seconds": b'{"type":"compiled","t_s":1,"compile_s":1,"attributed":1,"stages":[{"name":"a"}]}',
    "has lists of different lengths": b'{"type":"peak_measured","t_s":1,"measured_peak_bytes":1,"baseline_bytes":1,'
    b'"timeline_s":[1],"live_bytes":[],"method":"m"}',
}


@pytest.mark.parametrize("line", BROKEN_LINES.values(), ids=BROKEN_LINES)
def test_lines_that_are_not_events_are_skipped_and_counted(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / event_log.LOG_FILE
    path.write_bytes(line + b"\n" + event_log.encode(Finished(t_s=1.0)))
    tail = Tail(path)
    assert tail.read() == [Finished(t_s=1.0)]
    assert tail.skipped == 1


def test_events_of_a_later_version_are_skipped_and_not_counted_as_damage(tmp_path: Path) -> None:
    path = tmp_path / event_log.LOG_FILE
    path.write_bytes(b'{"type":"later"}\n{ "t_s": 1, "type": "later"}\n' + event_log.encode(Finished(t_s=1.0)))
    tail = Tail(path)
    assert tail.read() == [Finished(t_s=1.0)]
    assert tail.skipped == 0


def test_a_line_without_end_is_skipped_and_not_buffered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "LINE_BYTES", 1000)
    monkeypatch.setattr(event_log, "_CHUNK_BYTES", 100)
    path = tmp_path / event_log.LOG_FILE
    path.write_bytes(b"x" * 5000)
    tail = Tail(path)
    assert tail.read() == []
    assert len(tail._began) <= 1000
    with path.open("ab") as log:
        log.write(b"x\n" + event_log.encode(Finished(t_s=1.0)))
    assert tail.read() == [Finished(t_s=1.0)]
    assert tail.skipped == 1


def test_if_other_code_disables_the_garbage_collector_while_a_log_is_read_the_collector_stays_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "_CHUNK_BYTES", 10)
    log, decode = EventLog(tmp_path / event_log.LOG_FILE), event_log.decode
    log.write(Finished(t_s=1.0))

    def decode_and_disable(line: bytes) -> events.Event | None:
        gc.disable()
        return decode(line)

    monkeypatch.setattr(event_log, "decode", decode_and_disable)
    try:
        assert event_log.read_events(tmp_path) == [Finished(t_s=1.0)]
        assert not gc.isenabled()
    finally:
        gc.enable()


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


NO_FILES = (fifo, folder, loop, device)


@pytest.mark.parametrize("make", NO_FILES)
def test_a_log_that_is_not_a_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / event_log.LOG_FILE)
    with pytest.raises(OSError):  # noqa: PT011  # each kind of file gives another message
        event_log.read_events(tmp_path)
    with pytest.raises(OSError):  # noqa: PT011
        event_log.append(tmp_path / event_log.LOG_FILE, Finished(t_s=1.0))


def test_a_deleted_log_that_is_still_open_is_read(tmp_path: Path) -> None:
    log = EventLog(tmp_path / event_log.LOG_FILE)
    tail = Tail(tmp_path / event_log.LOG_FILE, keep_open=True)
    assert tail.read() == []
    (tmp_path / event_log.LOG_FILE).unlink()
    log.write(Finished(t_s=1.0))
    assert tail.read() == [Finished(t_s=1.0)]
    tail.close()


def test_a_text_that_cannot_be_encoded_is_written_with_replacements(tmp_path: Path) -> None:
    EventLog(tmp_path / event_log.LOG_FILE).write(Phase(t_s=1.0, phase="größer \udcff"))
    assert event_log.read_events(tmp_path) == [Phase(t_s=1.0, phase="größer ?")]


def test_if_the_program_closes_the_logs_descriptor_the_log_still_writes_only_to_its_own_file(tmp_path: Path) -> None:
    log = EventLog(tmp_path / event_log.LOG_FILE)
    os.close(log._file)
    log.write(Phase(t_s=0.0, phase="build"))
    own = os.open(tmp_path / "own", os.O_WRONLY | os.O_CREAT)
    os.dup2(own, log._file)
    log.write(Finished(t_s=1.0))
    assert event_log.read_events(tmp_path) == [Phase(t_s=0.0, phase="build"), Finished(t_s=1.0)]
    assert (tmp_path / "own").read_bytes() == b""


def test_reading_a_log_takes_less_than_three_times_as_long_as_parsing_its_json(tmp_path: Path) -> None:
    sample, step = events.MemorySample(t_s=1.0, rss_bytes=1 << 30), events.Step(t_s=1.0, seconds=0.01, warmup=False)
    lines = [event_log.encode(event) for event in (sample, step)] * 5_000
    (tmp_path / event_log.LOG_FILE).write_bytes(b"".join(lines))

    def took_s(act: Callable[[], object]) -> float:
        begun_s = time.process_time()
        act()
        return time.process_time() - begun_s

    event_log.read_events(tmp_path)
    json_s = min(took_s(lambda: [json.loads(line) for line in lines]) for _ in range(5))
    assert min(took_s(lambda: event_log.read_events(tmp_path)) for _ in range(5)) < 3 * json_s


def test_fields_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    (tmp_path / event_log.LOG_FILE).write_bytes(b'{"type":"phase","t_s":1.0,"phase":"build","new":3}\n')
    assert event_log.read_events(tmp_path) == [Phase(t_s=1.0, phase="build")]


def test_a_run_that_wrote_nothing_has_no_events(tmp_path: Path) -> None:
    assert event_log.read_events(tmp_path) == []


def test_a_log_is_never_overwritten(tmp_path: Path) -> None:
    EventLog(tmp_path / event_log.LOG_FILE)
    with pytest.raises(FileExistsError):
        EventLog(tmp_path / event_log.LOG_FILE)


def test_a_writer_that_cannot_write_reports_the_error_and_ends(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(writing, 2)
        log = EventLog(tmp_path / event_log.LOG_FILE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
        log.write(Finished(t_s=0.0))
        os._exit(0)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == event_log.EXIT_LOG_UNWRITABLE
    assert b"File too large" in os.read(reading, 1000)
    os.close(reading)


def test_each_moment_counts_for_the_innermost_stage() -> None:
    shares, attributed = compile_stages.attribute(
        [Interval("forward", 1.0, 5.0), Interval("fuse", 2.0, 3.0), Interval("fuse", 3.5, 4.0)], 0.0, 8.0
    )
    assert shares == [
        {"name": "forward", "seconds": 2.5},
        {"name": "fuse", "seconds": 1.5},
        {"name": compile_stages.UNATTRIBUTED, "seconds": 4.0},
    ]
    assert attributed == 0.5


def test_intervals_outside_the_window_do_not_count() -> None:
    shares, attributed = compile_stages.attribute([Interval("a", -1.0, 1.0), Interval("b", 9.0, 10.0)], 0.0, 4.0)
    assert shares == [{"name": "a", "seconds": 1.0}, {"name": compile_stages.UNATTRIBUTED, "seconds": 3.0}]
    assert attributed == 0.25


def test_the_parts_of_a_fusion_are_separate_intervals() -> None:
    parts = {"definition": 1.0, "Dynamo": 2.0, "first launch": 0.5}
    end = events.FusionEnd(t_s=10.0, name="F0", index=0, count=1, seconds=3.5, parts=parts)
    assert compile_stages.intervals_of(end) == [
        Interval("fusions: definition", 6.5, 7.5),
        Interval("fusions: Dynamo", 7.5, 9.5),
        Interval("fusions: first launch", 9.5, 10.0),
    ]


def test_an_empty_window_has_no_shares() -> None:
    assert compile_stages.attribute([], 1.0, 1.0) == ([], 0.0)


def test_the_rest_of_an_interval_is_the_time_that_no_other_interval_covers(tmp_path: Path) -> None:
    recorder = compile_stages.Recorder(EventLog(tmp_path / event_log.LOG_FILE))
    recorder.intervals = [Interval("a", 1.0, 2.0), Interval("b", 3.0, 9.0)]
    recorder.rest_of("rest", 0.0, 4.0)
    assert recorder.intervals[2:] == [Interval("rest", 0.0, 1.0), Interval("rest", 2.0, 3.0)]
    assert [event.seconds for event in event_log.read_events(tmp_path) if isinstance(event, Stage)] == [1.0, 1.0]
