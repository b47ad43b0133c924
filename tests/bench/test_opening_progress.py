"""A notebook's cell says what `open` does and how long it has taken, if it takes more than a few seconds."""

import re
import time

import jupyter_client
import pytest

from workbench.bench.opening_progress import OpeningProgress


def test_a_long_opening_names_its_present_step_and_then_its_time() -> None:
    shown: list[str] = []
    with OpeningProgress("net", shown.append, after_s=0.01) as progress:
        while not shown:
            time.sleep(0.001)
        progress.say("planning")
        while len(shown) < 2:
            time.sleep(0.001)
    steps = [re.sub(r"\d+ s", "N s", text) for text in shown]
    assert steps[0] == "Opening net: tracing the program, N s so far"
    assert set(steps[1:-1]) == {"Opening net: planning, N s so far"}
    assert steps[-1] == "Opening net took N s"


def test_a_short_opening_shows_nothing() -> None:
    shown: list[str] = []
    with OpeningProgress("net", shown.append):
        pass
    assert not shown


def test_an_error_ends_the_progress() -> None:
    shown: list[str] = []

    def fail() -> None:
        with OpeningProgress("net", shown.append, after_s=0.01):
            while not shown:
                time.sleep(0.001)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert shown[-1].startswith("Opening net took ")


@pytest.mark.slow
def test_a_cell_has_one_line_that_is_replaced() -> None:
    manager, client = jupyter_client.manager.start_new_kernel()
    found: list[tuple[str, str, str]] = []
    code = (
        "import time\n"
        "from workbench.bench.opening_progress import OpeningProgress\n"
        "with OpeningProgress('net', after_s=0.1): time.sleep(0.5)"
    )

    def keep(message: dict) -> None:
        if message["msg_type"] in ("display_data", "update_display_data", "stream", "error"):
            content = message["content"]
            found.append(
                (message["msg_type"], content["data"]["text/plain"], content["transient"]["display_id"])
                if "data" in content
                else (message["msg_type"], str(content), "")
            )
            assert message["parent_header"]["msg_type"] == "execute_request"

    try:
        client.execute_interactive(code, timeout=120, output_hook=keep)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert [kind for kind, *_ in found] == ["display_data", "update_display_data"]
    assert found[0][1] == "Opening net: tracing the program, 0 s so far"
    assert found[1][1].startswith("Opening net took ")
    assert found[0][2] == found[1][2]
