// The list of the experiments of all backends.

import { h, replace } from "./dom.js";
import { Stream } from "./connection.js";
import { STATES, duration, plural, sign, stateClass } from "./format.js";

export function experimentAddress(backend, name) {
  return `#/experiment/${encodeURIComponent(backend)}/${encodeURIComponent(name)}`;
}

export function stateChip(state, text = state) {
  return h("span", { class: `chip ${stateClass(state)}` }, h("span", { "aria-hidden": "true" }, sign(state)), text);
}

// A bar with the states of all processes.
export function stateBar(counts) {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  const words = STATES.filter((state) => counts[state]).map((state) => `${counts[state]} ${state}`);
  const bar = h("span", { class: "state-bar", role: "img", "aria-label": words.join(", "), title: words.join(", ") });
  for (const state of STATES) {
    if (!counts[state]) continue;
    const part = h("span", { class: stateClass(state) });
    part.style.flexGrow = counts[state] / total;
    bar.append(part);
  }
  return bar;
}

export class ExperimentsView {
  constructor(root) {
    document.title = "Experiments – symphony";
    this.rows = null;
    this.outage = h("p", { class: "banner warning", hidden: true, role: "status" });
    this.body = h("div", {}, h("p", { class: "empty" }, "Loading…"));
    root.append(h("div", { class: "page" }, h("h1", {}, "Experiments"), this.outage, this.body));
    this.stream = new Stream((message) => this.apply(message));
    this.stream.observe({});
    this.timer = setInterval(() => this.showAges(), 1000);
  }

  close() {
    this.stream.close();
    clearInterval(this.timer);
  }

  apply(message) {
    this.outage.hidden = !message.outage;
    this.outage.textContent = message.outage ?? "";
    const attention = (row) => STATES.indexOf(row.state);
    this.rows = message.experiments.sort((first, second) => attention(first) - attention(second));
    const received = Date.now() / 1000;
    for (const row of this.rows) if (row.created) row.launched = received - (row.now - row.created);
    const focused = document.activeElement?.dataset?.key;
    replace(this.body, this.rows.length ? this.table() : this.empty());
    if (focused) this.body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    this.showAges();
  }

  empty() {
    return h(
      "div",
      { class: "empty" },
      h("p", {}, "No experiment is running."),
      h("p", {}, "Launch one with ", h("code", {}, "symphony launch FILE"), ", or look at ", h("a", { href: "#/runs" }, "earlier runs"), "."),
    );
  }

  table() {
    return h(
      "ul",
      { class: "cards" },
      this.rows.map((row) =>
        h(
          "li",
          {},
          h(
            "a",
            { class: "card", href: experimentAddress(row.backend, row.name), "data-key": `${row.backend}/${row.name}` },
            h("span", { class: "card-head" }, h("strong", { class: "name" }, row.name), stateChip(row.state)),
            stateBar(row.counts),
            h(
              "span",
              { class: "card-facts" },
              h("span", {}, plural(row.processes, "process")),
              row.expected ? h("span", {}, `${row.ready}/${row.expected} ready`) : null,
              row.exit_code ? h("span", {}, `exit code ${row.exit_code}`) : null,
              h("span", {}, row.backend),
              h("span", { class: "age", "data-launched": row.launched ?? "" }),
            ),
            row.note ? h("span", { class: "note" }, row.note) : null,
          ),
        ),
      ),
    );
  }

  showAges() {
    const now = Date.now() / 1000;
    for (const element of this.body.querySelectorAll(".age")) {
      const launched = Number(element.dataset.launched);
      element.textContent = launched ? `launched ${duration(now - launched)} ago` : "";
    }
  }
}
