// The recorded runs: their list, one run, and the differences between two runs.

import { h, replace } from "./dom.js";
import { address, get } from "./connection.js";
import { stateChip } from "./experiments.js";
import { dateTime, duration, plural, visible } from "./format.js";

const REFRESH_SECONDS = 10;
const TAIL_LINES = 1000;

function failure(error) {
  return h("p", { class: "banner warning", role: "alert" }, error.message);
}

function runAddress(name) {
  return `#/run/${encodeURIComponent(name)}`;
}

export class RunsView {
  constructor(root) {
    document.title = "Runs – symphony";
    this.chosen = new Set();
    this.search = h("input", { type: "search", placeholder: "Filter runs", "aria-label": "Filter runs", oninput: () => this.draw() });
    this.compare = h("button", { type: "button", class: "primary", disabled: true, onclick: () => this.openComparison() }, "Compare");
    this.hint = h("span", { class: "dim", role: "status" });
    this.body = h("div", {}, h("p", { class: "empty" }, "Loading…"));
    root.append(h("div", { class: "page" }, h("h1", {}, "Runs"), h("div", { class: "toolbar" }, this.search, this.compare, this.hint), this.body));
    this.load();
    this.timer = setInterval(() => document.hidden || this.load(), REFRESH_SECONDS * 1000);
  }

  close() {
    clearInterval(this.timer);
  }

  async load() {
    try {
      this.data = await get("runs");
      this.draw();
    } catch (error) {
      if (!this.data) replace(this.body, failure(error));
    }
  }

  draw() {
    if (!this.data) return;
    const wanted = this.search.value.toLowerCase();
    const rows = this.data.runs.filter((run) => `${run.run} ${run.backend} ${run.state} ${run.code}`.toLowerCase().includes(wanted));
    const now = Date.now() / 1000;
    const focused = document.activeElement?.dataset?.run;
    replace(
      this.body,
      this.data.problems.map((text) => h("p", { class: "banner warning" }, text)),
      rows.length
        ? h(
            "div",
            { class: "table-box" },
            h(
              "table",
              { class: "runs" },
              h("thead", {}, h("tr", {}, ["", "State", "Run", "Exit", "Processes", "Launched", "Duration", "Backend", "Code"].map((title) => h("th", { scope: "col" }, title || h("span", { class: "visually-hidden" }, "Compare"))))),
              h("tbody", {}, rows.map((run) => this.row(run, now))),
            ),
          )
        : h("p", { class: "empty" }, wanted ? "No run matches." : "No run is recorded yet."),
      this.data.total > this.data.runs.length ? h("p", { class: "dim" }, `${this.data.total - this.data.runs.length} older runs are not shown.`) : null,
    );
    if (focused) this.body.querySelector(`[data-run="${CSS.escape(focused)}"]`)?.focus();
    this.drawChoice();
  }

  row(run, now) {
    const box = h("input", { type: "checkbox", "aria-label": `Compare ${run.run}`, "data-run": run.run, onchange: () => this.choose(run.run, box.checked) });
    box.checked = this.chosen.has(run.run);
    return h(
      "tr",
      {},
      h("td", {}, box),
      h("td", {}, stateChip(run.state)),
      h("td", { class: "run-name" }, h("a", { href: runAddress(run.run) }, run.run)),
      h("td", { class: "number" }, run.exit_code ?? ""),
      h("td", { class: "number" }, run.processes ?? ""),
      h("td", {}, run.launched ? `${duration(now - run.launched)} ago` : ""),
      h("td", {}, run.ended ? duration(run.duration) : ""),
      h("td", {}, run.backend),
      h("td", { class: "dim" }, run.code ?? ""),
    );
  }

  choose(name, isChosen) {
    if (isChosen) this.chosen.add(name);
    else this.chosen.delete(name);
    this.drawChoice();
  }

  drawChoice() {
    this.compare.disabled = this.chosen.size !== 2;
    this.hint.textContent = this.chosen.size === 2 ? "" : "Choose two runs to compare them.";
  }

  openComparison() {
    // The older run comes first.
    const names = this.data.runs.map((run) => run.run).filter((name) => this.chosen.has(name)).reverse();
    location.hash = `/compare/${names.map(encodeURIComponent).join("/")}`;
  }
}

export class RunView {
  constructor(root, name) {
    document.title = `${name} – symphony`;
    this.name = name;
    this.body = h("div", {}, h("p", { class: "empty" }, "Loading…"));
    root.append(h("div", { class: "page" }, h("p", { class: "back" }, h("a", { href: "#/runs" }, "← Runs")), h("h1", {}, name), this.body));
    this.load();
  }

  close() {}

  async load() {
    try {
      this.draw(await get("run", { run: this.name }));
    } catch (error) {
      replace(this.body, failure(error));
    }
  }

  draw({ result, facts, processes }) {
    const rows = {
      experiment: result.experiment,
      backend: result.backend,
      launched: result.launched ? dateTime(result.launched) : null,
      duration: result.ended ? duration(result.duration) : null,
      "exit code": result.exit_code,
      code: result.code,
      incomplete: (result.cut ?? []).join("; "),
      ...facts,
    };
    const log = h("pre", { class: "recorded-log", tabindex: "0", hidden: true });
    const title = h("h2", { hidden: true });
    const open = async (process) => {
      title.hidden = log.hidden = false;
      title.textContent = `Log of ${process.path}`;
      log.textContent = "Loading…";
      const response = await fetch(address("log", { run: this.name, process: process.name, tail: TAIL_LINES }));
      log.textContent = response.ok ? visible(await response.text()) || "(no output)" : (await response.json()).error;
      log.focus();
      log.scrollTop = log.scrollHeight;
    };
    replace(
      this.body,
      h("p", {}, stateChip(result.state)),
      h("dl", { class: "facts-list" }, Object.entries(rows).filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, visible(String(value)))])),
      h("h2", {}, plural(processes.length, "process")),
      h(
        "div",
        { class: "table-box" },
        h(
          "table",
          {},
          h("thead", {}, h("tr", {}, ["Process", "State", "Exit", "Restarts", "Reason", "Log"].map((text) => h("th", { scope: "col" }, text)))),
          h(
            "tbody",
            {},
            processes.map((process) =>
              h(
                "tr",
                {},
                h("td", {}, process.path),
                h("td", {}, stateChip(process.state)),
                h("td", { class: "number" }, process.exit_code ?? ""),
                h("td", { class: "number" }, process.restarts || ""),
                h("td", {}, visible(process.reason)),
                h(
                  "td",
                  { class: "nowrap" },
                  h("button", { type: "button", class: "small-button", onclick: () => open(process) }, "Show"),
                  " ",
                  h("a", { href: address("log", { run: this.name, process: process.name, download: "1" }), download: "" }, "Download"),
                ),
              ),
            ),
          ),
        ),
      ),
      title,
      log,
    );
  }
}

export class CompareView {
  constructor(root, first, second) {
    document.title = "Comparison – symphony";
    this.body = h("div", {}, h("p", { class: "empty" }, "Loading…"));
    root.append(h("div", { class: "page" }, h("p", { class: "back" }, h("a", { href: "#/runs" }, "← Runs")), h("h1", {}, "Comparison"), this.body));
    this.load(first, second);
  }

  close() {}

  async load(first, second) {
    try {
      const { runs, differences } = await get("compare", { first, second });
      const cell = (value) => h("td", { class: value === null ? "dim" : "" }, value === null ? "–" : visible(value));
      replace(
        this.body,
        differences.length
          ? h(
              "div",
              { class: "table-box" },
              h(
                "table",
                { class: "comparison" },
                h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Value"), runs.map((run) => h("th", { scope: "col" }, h("a", { href: runAddress(run) }, run))))),
                h("tbody", {}, differences.map(([path, ...values]) => h("tr", {}, h("th", { scope: "row" }, path), values.map(cell)))),
              ),
            )
          : h("p", { class: "empty" }, "The runs do not differ."),
      );
    } catch (error) {
      replace(this.body, failure(error));
    }
  }
}
