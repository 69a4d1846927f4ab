"""Measure ways to draw a report: bytes of the page, first paint, the time until all is drawn, and no script.

    npm install --prefix FOLDER vega@6 vega-lite@6 vega-interpreter@2 d3@7 @observablehq/plot@0.6 uplot@1.6
    python -m benchmarks.report_drawing.measure FOLDER

Each page has four charts of two lines with 100 points, with the library inside. The policy allows inline scripts and no
eval, as a report that opens offline needs. Needs playwright and chromium: see `make browser`.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedcalib.report.canvas import chart_style
from fedcalib.report.curve_plots import roc
from fedcalib.report.values import PlotLine

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
CHARTS, REPEATS = 4, 7
X = np.linspace(0, 1, 100)
ROWS = [{"x": float(x), "y": float(x**power), "s": name} for name, power in (("a", 0.3), ("b", 0.5)) for x in X]
VEGA = """
const spec = {data: {values: ROWS}, mark: "line", width: 400, height: 300,
  encoding: {x: {field: "x", type: "quantitative"}, y: {field: "y", type: "quantitative"}, color: {field: "s"}}};
const parsed = vega.parse(vegaLite.compile(spec).spec, null, {ast: true});
const how = {expr: vega.expressionInterpreter, renderer: "svg"};
Promise.all(boxes.map((box) => new vega.View(parsed, how).initialize(box).runAsync())).then(done);
"""
PLOT = """
boxes.forEach((box) => box.append(Plot.plot({marks: [Plot.line(ROWS, {x: "x", y: "y", stroke: "s"})]}))); done();
"""
UPLOT = """
const of = (name) => ROWS.filter((row) => row.s === name).map((row) => row.y);
const xs = ROWS.filter((row) => row.s === "a").map((row) => row.x);
boxes.forEach((box) => new uPlot({width: 400, height: 300, scales: {x: {time: false}},
  series: [{}, {stroke: "red"}, {stroke: "blue"}]}, [xs, of("a"), of("b")], box)); setTimeout(done, 0);
"""
_BUILDS = (("vega", ".min.js"), ("vega-lite", ".min.js"), ("vega-interpreter", ".js"))
LIBRARIES = {
    "Vega-Lite": (tuple(f"{name}/build/{name}{end}" for name, end in _BUILDS), VEGA),
    "Observable Plot": (("d3/dist/d3.min.js", "@observablehq/plot/dist/plot.umd.min.js"), PLOT),
    "uPlot": (("uplot/dist/uPlot.iife.min.js",), UPLOT),
}


def plain(text: str) -> str:
    """A script for a page without modules; one of the files is a module that extends Vega."""
    if "export {" not in text:
        return text.replace("</script", "<\\/script")
    text = re.sub(r"import (\{.*?\}) from 'vega-util';", r"const \1 = vega;", text)
    return f"(() => {{ {re.sub(r'export .*', 'vega.expressionInterpreter = expression;', text)}\n}})();"


def page(scripts: list[str], body: str) -> str:
    """A page with these scripts inside."""
    inside = "".join(f"<script>{text}</script>" for text in scripts)
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>x</title>'
    return f"<!DOCTYPE html><html lang=en><head>{head}</head><body><h1>Report</h1>{body}{inside}</body></html>"


def library(folder: Path, files: tuple[str, ...], code: str) -> str:
    """A page whose charts a library draws."""
    found = [(folder / "node_modules" / name).read_text(encoding="utf-8") for name in files]
    start = (
        f"const ROWS = {json.dumps(ROWS)}; const boxes = Array.from(document.querySelectorAll('.box'));"
        "const done = () => { document.body.dataset.done = performance.now(); };"
    )
    return page([*map(plain, found), start + code], '<div class="box"></div>' * CHARTS)


def own() -> str:
    """A page whose charts are drawn already."""
    curves = [PlotLine(name, X, X**power) for name, power in (("a", 0.3), ("b", 0.5))]
    drawn = "".join(roc(curves).svg for _ in range(CHARTS))
    return page(["document.body.dataset.done = performance.now();"], f"<style>{chart_style()}</style>{drawn}")


def measured(browser: Any, path: Path, *, script: bool = True) -> tuple[float, float, int]:
    """First paint, time until all is drawn (ms), and the charts that are there."""
    context = browser.new_context(java_script_enabled=script)
    tab = context.new_page()
    tab.goto(path.as_uri())
    tab.wait_for_timeout(400)
    charts = tab.locator("svg, canvas").count()
    first, drawn = float("nan"), float("nan")
    if script:
        first = tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
        drawn = tab.evaluate("Number(document.body.dataset.done ?? NaN)")
    context.close()
    return first, drawn, charts


def main(folder: Path) -> None:
    """Print a table."""
    from playwright.sync_api import sync_playwright

    pages = {name: library(folder, files, code) for name, (files, code) in LIBRARIES.items()} | {"own SVG": own()}
    print("| | page, bytes | first paint, ms | all drawn, ms | charts | charts without a script |")
    print("|---|---|---|---|---|---|")
    with TemporaryDirectory() as place, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, text in pages.items():
            path = Path(place) / "page.html"
            path.write_text(text, encoding="utf-8")
            runs = [measured(browser, path) for _ in range(REPEATS)]
            bare = measured(browser, path, script=False)[2]
            first, drawn = (median(run[index] for run in runs) for index in (0, 1))
            print(f"| {name} | {len(text.encode()):,} | {first:.0f} | {drawn:.0f} | {runs[0][2]} | {bare} |")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
