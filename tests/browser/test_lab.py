"""Test the harness: it can see and do what a user of JupyterLab can see and do, and it blocks the network."""

import pytest

from tests.browser.harness import Lab

WIDGETS = [
    """
import anywidget
import ipywidgets
import traitlets

class Board(anywidget.AnyWidget):
    _esm = '''
    function render({ model, el }) {
        const canvas = document.createElement("canvas");
        canvas.width = 400; canvas.height = 120; canvas.className = "board";
        const pen = canvas.getContext("2d");
        pen.fillStyle = "#1565c0"; pen.fillRect(0, 0, 400, 120);
        pen.fillStyle = "#fff"; pen.font = "20px DejaVu Sans"; pen.fillText("Click me: forward × backward", 20, 66);
        canvas.onclick = event => { model.set("at", [event.offsetX, event.offsetY]); model.save_changes(); };
        el.append(canvas);
    }
    export default { render };
    '''
    at = traitlets.List([]).tag(sync=True)

board, button, clicks = Board(), ipywidgets.Button(description="Press"), []
button.on_click(lambda _: clicks.append("pressed"))
ipywidgets.VBox([board, button])
""",
    "print('all', 'ran')",
]


def test_a_widget_is_shown_clicked_and_read_back_in_the_kernel(lab: Lab) -> None:
    lab.write_notebook("widgets.ipynb", WIDGETS)
    lab.open_notebook("widgets.ipynb")
    lab.run_all()
    lab.wait_marker("all ran")

    lab.click_canvas(123, 45, ".board")
    lab.page.get_by_role("button", name="Press").click()

    lab.wait_until(lambda: lab.kernel_eval("board.at") == "[123, 45]")
    lab.wait_until(lambda: lab.kernel_eval("print(len(clicks)); clicks") == "1\n['pressed']")
    assert lab.image("widgets").stat().st_size > 10_000


@pytest.mark.long
def test_a_failing_cell_raises_its_traceback_from_the_wait(lab: Lab) -> None:
    lab.write_notebook("failing.ipynb", ["1 / 0", "print('never')"])
    lab.open_notebook("failing.ipynb")
    lab.run_all()
    with pytest.raises(AssertionError, match="ZeroDivisionError: division by zero"):
        lab.wait_marker("never")
    with pytest.raises(AssertionError, match="NameError: name 'nothing' is not defined"):
        lab.kernel_eval("nothing")


@pytest.mark.long
def test_an_evaluation_during_a_failing_cell_is_answered(lab: Lab) -> None:
    lab.write_notebook("failing.ipynb", ["import time; time.sleep(2); 1 / 0"])
    lab.open_notebook("failing.ipynb")
    lab.run_all()
    assert lab.kernel_eval("6 * 7") == "42"


@pytest.mark.long
def test_a_network_request_is_refused_and_reported(lab: Lab) -> None:
    lab.write_notebook(
        "asking.ipynb",
        [
            "import contextlib, urllib.request\n"
            "with contextlib.suppress(OSError):\n"
            "    urllib.request.urlopen('http://kernel.example/')",
            "from IPython.display import HTML\n"
            'HTML(\'<img src="https://page.example/a.png"><img src="http://192.0.2.1/b.png">\')',
            "print('all', 'ran')",
        ],
    )
    refused: dict[str, str | None] = {}
    lab.page.on("requestfailed", lambda request: refused.update({request.url: request.failure}))
    lab.open_notebook("asking.ipynb")
    assert lab.asked_outside() == []
    lab.run_all()
    lab.wait_marker("all ran")
    lab.wait_until(lambda: len(lab.outside) > 1)

    address, name, *kernel = sorted(set(lab.asked_outside()))
    assert (address, name) == ("http://192.0.2.1/b.png", "https://page.example/a.png")
    # The browser refuses requests to a host name and to an IP address before it sends a byte.
    lab.wait_until(lambda: [refused.get(url) for url in (address, name)] == ["net::ERR_NAME_NOT_RESOLVED"] * 2)
    assert [line.split(" from ")[0] for line in kernel] == ["socket.getaddrinfo kernel.example"]
    lab.forget_outside()
