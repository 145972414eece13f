// One experiment: its topology, processes, output and events, and the details of what is selected.

import { announce, h, replace, setText, tabList } from "./dom.js";
import { get, Stream } from "./connection.js";
import { experimentControls } from "./controls.js";
import { DetailsPanel } from "./details.js";
import { EventsView } from "./events.js";
import { stateChip } from "./experiments.js";
import { duration, plural, sign, STATES, stateClass } from "./format.js";
import { OutputView } from "./output.js";
import { ProcessesView } from "./processes.js";
import { Store } from "./store.js";
import { TopologyView } from "./topology.js";

const TABS = [
  ["topology", "Topology"],
  ["processes", "Processes"],
  ["output", "Logs"],
  ["events", "Events"],
];
const MAX_ANNOUNCED = 5;

export class ExperimentView {
  constructor(root, session, backend, name) {
    this.backend = backend;
    this.name = name;
    this.session = session;
    this.store = new Store();
    this.changed = new Set();
    this.frame = null;
    this.outputLines = null;
    document.title = `${name} – symphony`;

    this.heading = h("div", { class: "heading-facts" });
    this.buttons = experimentControls(this);
    this.banner = h("p", { class: "banner", hidden: true, role: "status" });
    this.tabs = tabList("Views", TABS, "topology", (key) => this.go({ tab: key }));
    this.content = h("div", { class: "content", role: "tabpanel" });
    this.panelRoot = h("aside", { class: "panel", hidden: true, "aria-label": "Details" });
    this.body = h("div", { class: "split" }, h("section", { class: "main-pane" }, this.content), this.panelRoot);
    root.append(
      h(
        "div",
        { class: "page wide" },
        h("div", { class: "heading" }, h("div", { class: "heading-name" }, h("h1", {}, name), this.heading), this.buttons),
        this.banner,
        this.tabs,
        this.body,
      ),
    );
    this.views = {
      topology: new TopologyView(this),
      processes: new ProcessesView(this),
      output: new OutputView(this),
      events: new EventsView(this),
    };
    this.panel = new DetailsPanel(this, this.panelRoot);
    this.stream = new Stream((message) => this.apply(message));
    this.timer = setInterval(() => this.redraw("clock"), 1000);
    this.onKey = (event) => this.handleKey(event);
    document.addEventListener("keydown", this.onKey);
  }

  close() {
    this.stream.close();
    clearInterval(this.timer);
    cancelAnimationFrame(this.frame);
    document.removeEventListener("keydown", this.onKey);
    for (const view of Object.values(this.views)) view.close?.();
    this.panel.close();
  }

  // --- the address: the tab, the selection and the tab of the panel ---

  navigate(parameters) {
    const tab = parameters.get("tab");
    this.tab = TABS.some(([key]) => key === tab) ? tab : "topology";
    this.selection = parameters.get("select") || "";
    this.panelTab = parameters.get("panel") || "overview";
    this.tabs.mark(this.tab);
    if (this.shownTab !== this.tab) {
      this.shownTab = this.tab;
      this.content.className = `content content-${this.tab}`;
      this.content.setAttribute("aria-label", TABS.find(([key]) => key === this.tab)[1]);
      replace(this.content, this.views[this.tab].element);
    }
    this.panel.show();
    this.observe();
    this.redraw("all");
  }

  go(changes) {
    const values = { tab: this.tab, select: this.selection, panel: this.panelTab, ...changes };
    const query = new URLSearchParams();
    if (values.tab !== "topology") query.set("tab", values.tab);
    if (values.select) query.set("select", values.select);
    if (values.select && values.panel !== "overview") query.set("panel", values.panel);
    const path = `/experiment/${encodeURIComponent(this.backend)}/${encodeURIComponent(this.name)}`;
    const text = query.toString();
    location.hash = text ? `${path}?${text}` : path;
    // The event of the new address comes later.
    this.navigate(query);
  }

  select(key, changes = {}) {
    this.go({ select: key, ...changes });
  }

  // --- selection ---

  // Return the processes of a key: "process NAME", "replicas NAME" or "group NAME". A service has none.
  processesOf(key) {
    const box = this.store.topology?.boxes.find((candidate) => candidate.key === key);
    if (box) return box.processes;
    const name = key.slice("process ".length);
    return key.startsWith("process ") && this.store.processes.has(name) ? [name] : [];
  }

  get selected() {
    return this.processesOf(this.selection);
  }

  // --- the stream ---

  // The output is part of the stream while it is visible.
  observe() {
    const wanted = { backend: this.backend, experiment: this.name };
    this.outputView = null;
    if (this.tab === "output") this.outputView = this.views.output;
    else if (this.selection && this.panel.shownTab === "output") this.outputView = this.panel.output;
    if (this.outputView) {
      const processes = this.selection ? this.selected : [];
      // The names arrive with the first message.
      if (this.selection && !processes.length) this.outputView = null;
      else {
        wanted.output = "1";
        wanted.process = processes;
        if (this.outputView.wantedLines) wanted.lines = String(this.outputView.wantedLines);
      }
    }
    this.stream.observe(wanted);
  }

  apply(message) {
    if (message.problem) {
      this.showBanner(message.problem, true);
      replace(this.heading);
      return;
    }
    const before = new Map([...this.store.processes].map(([name, process]) => [name, process.state]));
    for (const part of this.store.apply(message)) this.changed.add(part);
    if (!message.reset && message.processes) this.announceStates(before, message.processes);
    if (message.output) this.outputView?.add(message.output);
    if (message.names) this.observe();
    if (message.topology?.services.length) this.loadAddresses();
    this.schedule();
  }

  // The addresses are additional information, so errors are not shown.
  async loadAddresses() {
    try {
      const { addresses } = await get("services", { backend: this.backend, experiment: this.name });
      this.store.addresses = addresses;
      this.redraw("addresses");
    } catch {
      // The lines show the names of the services.
    }
  }

  announceStates(before, processes) {
    const changed = processes.filter((process) => before.get(process.name) !== process.state);
    for (const process of changed.slice(0, MAX_ANNOUNCED)) {
      announce(`${process.path} ${process.state}${process.failed && process.reason ? `: ${process.reason}` : ""}`);
    }
    if (changed.length > MAX_ANNOUNCED) announce(`${changed.length - MAX_ANNOUNCED} more processes have changed`);
  }

  // --- drawing, once per frame ---

  redraw(part) {
    this.changed.add(part);
    this.schedule();
  }

  schedule() {
    // A hidden page has no frames.
    if (this.frame === null) {
      this.frame = requestAnimationFrame(() => {
        this.frame = null;
        const changed = this.changed;
        this.changed = new Set();
        this.draw(changed);
      });
    }
  }

  draw(changed) {
    const all = changed.has("all");
    if (all || changed.has("experiment") || changed.has("processes") || changed.has("clock")) this.drawHeading();
    this.views[this.tab].draw(changed);
    this.panel.draw(changed);
  }

  drawHeading() {
    const experiment = this.store.experiment;
    if (!experiment?.state) {
      if (experiment?.gone) this.showBanner(`${experiment.gone}. Its last run is in the list of runs.`, false);
      else if (experiment?.outage) this.showBanner(experiment.outage, true);
      return;
    }
    const now = this.store.now();
    const facts = [
      experiment.backend,
      plural(experiment.processes, "process"),
      experiment.expected ? `${experiment.ready}/${experiment.expected} ready` : null,
      experiment.created ? `launched ${duration(now - experiment.created)} ago` : null,
      experiment.deadline ? `deadline in ${duration(experiment.deadline - now)}` : null,
      experiment.exit_code ? `exit code ${experiment.exit_code}` : null,
    ].filter(Boolean);
    const counts = STATES.filter((state) => experiment.counts[state]);
    const key = JSON.stringify([experiment.gone, experiment.state, experiment.counts]);
    if (this.headingKey !== key) {
      this.headingKey = key;
      this.factsText = h("span", { class: "facts" });
      const state = experiment.gone ? stateChip("stopped", "deleted") : stateChip(experiment.state);
      const chips = counts.length > 1 && !experiment.gone ? counts.map((state) => countChip(state, experiment.counts[state])) : [];
      replace(this.heading, state, chips, this.factsText);
      document.title = `${sign(experiment.state)} ${this.name} – symphony`;
    }
    setText(this.factsText, experiment.gone ? experiment.backend : facts.join(" · "));
    const message = experiment.gone || experiment.outage || experiment.note;
    this.showBanner(message, Boolean(experiment.outage));
    this.buttons.update(experiment);
  }

  showBanner(text, isProblem) {
    this.banner.hidden = !text;
    setText(this.banner, text ?? "");
    this.banner.classList.toggle("warning", isProblem);
  }

  // --- keys ---

  handleKey(event) {
    const isTyping = event.target.closest("input, select, textarea, dialog");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && !event.target.closest("dialog") && this.selection) {
      this.select("");
      return;
    }
    if (isTyping) return;
    const index = Number(event.key) - 1;
    if (index in TABS) this.go({ tab: TABS[index][0] });
    if (event.key === "/") {
      const field = (this.panelRoot.hidden ? null : this.panelRoot.querySelector("input[type=search]")) ?? this.content.querySelector("input[type=search]");
      if (field) {
        event.preventDefault();
        field.focus();
      }
    }
  }
}

function countChip(state, count) {
  return h(
    "span",
    { class: `count ${stateClass(state)}`, title: `${count} ${state}` },
    h("span", { "aria-hidden": "true" }, sign(state)),
    ` ${count} `,
    h("span", { class: "visually-hidden" }, state),
  );
}
