// The panel with the details of the selection: a process, several processes or a service.

import { h, replace, setText, tabList } from "./dom.js";
import { get } from "./connection.js";
import { Chart } from "./chart.js";
import { forwardButton, processControls } from "./controls.js";
import { EventsView } from "./events.js";
import { stateBar, stateChip } from "./experiments.js";
import { byName, bytes, cores, duration, percent, plural, reason, sign, stateClass, stateWords, visible } from "./format.js";
import { OutputView } from "./output.js";

const TABS = [
  ["overview", "Overview"],
  ["output", "Logs"],
  ["events", "Events"],
];

export class DetailsPanel {
  constructor(experiment, root) {
    this.experiment = experiment;
    this.root = root;
    this.output = new OutputView(experiment);
    this.events = new EventsView(experiment, true);
    this.key = "";
    this.shownTab = "overview";
    this.request = null;
  }

  close() {
    this.request?.abort();
    this.output.close();
  }

  // The view of logs or events beside the panel already shows those of the selection.
  get tabs() {
    return TABS.filter(([key]) => key === "overview" || key !== this.experiment.tab);
  }

  show() {
    const { selection, panelTab, tab } = this.experiment;
    this.shownTab = this.tabs.some(([key]) => key === panelTab) ? panelTab : "overview";
    const key = selection ? [selection, this.shownTab, tab].join("\n") : "";
    if (key === this.key) return;
    const hadSelection = Boolean(this.key);
    const isOther = this.key.split("\n")[0] !== selection;
    this.key = key;
    this.request?.abort();
    this.root.hidden = !selection;
    document.body.classList.toggle("has-panel", Boolean(selection));
    if (!selection) {
      replace(this.root);
      if (hadSelection) this.lastFocus?.focus?.();
      return;
    }
    if (!hadSelection) this.lastFocus = document.activeElement;
    this.built = false;
    if (isOther) this.output.wantedLines = null;
  }

  // Build the panel when the processes of the selection are known.
  build() {
    const { experiment } = this;
    const { selection, store } = experiment;
    const isService = selection.startsWith("service ");
    const names = experiment.selected;
    if (!isService && !names.length) {
      replace(this.root, this.head(selection.split(" ")[1], null), h("p", { class: "empty" }, store.experiment?.state ? "There is no such process." : "Loading…"));
      return;
    }
    this.built = true;
    this.names = names;
    if (isService) {
      this.buildService(selection.slice("service ".length));
      return;
    }
    this.chip = h("span", {});
    this.reasonText = h("p", { class: "reason" });
    this.controlsBox = h("div", {});
    const box = store.topology?.boxes.find((candidate) => candidate.key === selection);
    const title = names.length === 1 ? (store.processes.get(names[0])?.path ?? names[0]) : (box?.title ?? plural(names.length, "process"));
    const tabs = this.tabs;
    this.content = h("div", { class: `panel-content panel-${this.shownTab}`, role: "tabpanel" });
    replace(
      this.root,
      this.head(title, this.chip),
      this.reasonText,
      this.controlsBox,
      tabs.length > 1 ? tabList("Details", tabs, this.shownTab, (key) => experiment.go({ panel: key })) : null,
      this.content,
    );
    this.statesKey = null;
    if (this.shownTab === "output") replace(this.content, this.output.element);
    else if (this.shownTab === "events") replace(this.content, this.events.element);
    else if (names.length === 1) this.buildProcess(names[0]);
    else this.buildList(names);
  }

  head(title, chip) {
    return h(
      "div",
      { class: "panel-head" },
      h("h2", {}, title),
      chip,
      h("button", { type: "button", class: "quiet close", "aria-label": "Close the details", onclick: () => this.experiment.select("") }, "✕"),
    );
  }

  // --- one process ---

  buildProcess(name) {
    this.charts = {
      cpu: new Chart("CPU (cores)", cores, 0.1),
      memory: new Chart("Memory", bytes, 1024 * 1024),
      gpu_utilization: new Chart("GPU", percent, 1),
      gpu_memory: new Chart("GPU memory", bytes, 1024 * 1024),
    };
    this.usageNote = h("p", { class: "usage-note dim" });
    this.factsBox = h("dl", { class: "facts-list" });
    this.settings = h("div", { class: "settings" }, h("p", { class: "dim" }, "Loading…"));
    replace(
      this.content,
      h("div", { class: "charts" }, Object.values(this.charts).map((chart) => chart.element)),
      this.usageNote,
      this.factsBox,
      this.settings,
    );
    this.load(name);
  }

  async load(name) {
    const controller = new AbortController();
    this.request = controller;
    const { backend, name: experiment } = this.experiment;
    const parameters = { backend, experiment, process: name };
    const options = { signal: controller.signal };
    try {
      const { samples } = await get("usage", parameters, options);
      this.experiment.store.keepCurve(name, samples);
      this.experiment.redraw("usage");
      const details = await get("process", parameters, options);
      replace(this.settings, settingsSections(details));
    } catch (error) {
      if (error.name !== "AbortError") replace(this.settings, h("p", { class: "dim" }, `The settings are not known: ${error.message}`));
    }
  }

  drawProcess(process, changed, now) {
    const { store } = this.experiment;
    if (changed.has("all") || changed.has("usage") || this.isNew) {
      const curve = store.curves.get(process.name) ?? [];
      let hasValues = false;
      for (const [field, chart] of Object.entries(this.charts)) {
        const points = curve.filter((sample) => sample[field] !== null && sample[field] !== undefined).map((sample) => [sample.at, sample[field]]);
        chart.draw(points);
        hasValues ||= points.length > 0;
      }
      const why = store.usageUnavailable.usage;
      this.usageNote.hidden = hasValues;
      setText(this.usageNote, why ? `The resource use is not known: ${why}` : process.ended ? "No resource use was observed." : "Waiting for the resource use…");
    }
    const usage = store.usage.get(process.name);
    const facts = [
      ["started", process.started ? `${new Date(process.started * 1000).toLocaleString([], { hour12: false })} (${duration(now - process.started)} ago)` : null],
      ["exited", process.ended && process.ended_at ? `${duration(now - process.ended_at)} ago` : null],
      ["exit code", process.exit_code],
      ["restarts", process.restarts || null],
      ["pid", process.pid],
      ["open files", usage?.open_files],
      ["memory (PSS)", usage?.pss === null || usage?.pss === undefined ? null : bytes(usage.pss)],
      ["GPUs", usage?.devices?.length ? usage.devices.join(", ") : null],
    ].filter(([, value]) => value !== null && value !== undefined);
    const key = JSON.stringify(facts.map(([name]) => name));
    if (key !== this.factsKey || this.isNew) {
      this.factsKey = key;
      this.factValues = facts.map(() => h("dd", {}));
      replace(this.factsBox, facts.map(([name], index) => [h("dt", {}, name), this.factValues[index]]));
    }
    facts.forEach(([, value], index) => setText(this.factValues[index], String(value)));
  }

  // --- several processes ---

  buildList(names) {
    this.listBar = h("div", {});
    this.rows = new Map(
      [...names].sort(byName).map((name) => {
        const mark = h("span", { class: "mark", "aria-hidden": "true" });
        const state = h("span", { class: "dim" });
        const element = h("a", { href: "#", class: "list-row" }, mark, h("span", { class: "text" }, name), state);
        element.addEventListener("click", (event) => {
          event.preventDefault();
          this.experiment.select(`process ${name}`);
        });
        return [name, { element, mark, state }];
      }),
    );
    replace(this.content, this.listBar, h("div", { class: "list" }, [...this.rows.values()].map((row) => row.element)));
  }

  drawList() {
    const { store } = this.experiment;
    replace(this.listBar, stateBar(store.counts(this.names)));
    for (const [name, row] of this.rows) {
      const process = store.processes.get(name);
      if (!process) continue;
      row.element.className = `list-row ${stateClass(process.state)}`;
      setText(row.mark, process.state === "running" && !process.ready ? "◐" : sign(process.state));
      const usage = store.usage.get(name);
      const words = [stateWords(process)];
      if (usage?.cpu !== null && usage?.cpu !== undefined) words.push(`${cores(usage.cpu)} cores`);
      if (usage?.memory) words.push(bytes(usage.memory));
      setText(row.state, words.join(" · "));
    }
  }

  // --- a service ---

  async buildService(name) {
    const { experiment } = this;
    const service = experiment.store.topology?.services.find((candidate) => candidate.name === name);
    const content = h("div", { class: "panel-content" });
    replace(this.root, this.head(name, h("span", { class: "chip" }, "service")), content);
    if (!service) return;
    const goTo = (owner) => {
      const { store } = experiment;
      const box = store.topology.boxes.find((candidate) => candidate.kind !== "service" && candidate.key.endsWith(` ${owner}`));
      return h("a", { href: "#", class: "list-row", onclick: (event) => { event.preventDefault(); experiment.select(box?.key ?? `process ${owner}`); } }, h("span", { class: "text" }, box?.title ?? owner));
    };
    const addresses = h("div", {}, h("p", { class: "dim" }, "Loading the address…"));
    replace(
      content,
      addresses,
      h("h3", {}, "Served by"),
      service.owners.length ? h("div", { class: "list" }, service.owners.map(goTo)) : h("p", { class: "dim" }, "No process binds it."),
      h("h3", {}, "Used by"),
      service.clients.length ? h("div", { class: "list" }, service.clients.map(goTo)) : h("p", { class: "dim" }, "No process connects to it."),
    );
    const controller = new AbortController();
    this.request = controller;
    try {
      const data = await get("services", { backend: experiment.backend, experiment: experiment.name }, { signal: controller.signal });
      replace(addresses, serviceAddresses(experiment, service, data));
    } catch (error) {
      if (error.name !== "AbortError") replace(addresses, h("p", { class: "dim" }, `The address is not known: ${error.message}`));
    }
  }

  // --- drawing ---

  draw(changed) {
    if (!this.experiment.selection) return;
    const names = this.experiment.selected;
    const isService = this.experiment.selection.startsWith("service ");
    this.isNew = !this.built || (!isService && names.join() !== this.names?.join());
    if (this.isNew) this.build();
    if (!this.built || isService) return;
    const { store } = this.experiment;
    const processes = names.map((name) => store.processes.get(name)).filter(Boolean);
    const now = store.now();
    if (this.isNew || changed.has("all") || changed.has("processes")) this.drawStates(names, processes);
    setText(this.reasonText, processes.length === 1 ? visible(reason(processes[0], now)) : "");
    if (this.shownTab === "output") this.output.draw(this.isNew ? new Set(["all"]) : changed);
    else if (this.shownTab === "events") this.events.draw(this.isNew ? new Set(["all"]) : changed);
    else if (processes.length === 1 && names.length === 1) this.drawProcess(processes[0], changed, now);
    else if (this.isNew || ["all", "processes", "usage"].some((part) => changed.has(part))) this.drawList();
    this.isNew = false;
  }

  // The buttons that were not replaced during a control can be those of an earlier state.
  drawControlsAgain() {
    this.statesKey = null;
    this.experiment.redraw("processes");
  }

  drawStates(names, processes) {
    const key = JSON.stringify(processes.map((process) => [process.state, process.ready]));
    if (key === this.statesKey) return;
    this.statesKey = key;
    if (processes.length === 1) replace(this.chip, stateChip(processes[0].state, stateWords(processes[0])));
    // A control that is being carried out keeps its button.
    if (!this.controlsBox.querySelector("[aria-busy]")) replace(this.controlsBox, processControls(this.experiment, names, processes));
  }
}

function settingsSections(details) {
  return [
    section("Settings", { ...details.facts, ...details.resources }),
    section("Addresses", details.addresses),
    section("Environment", details.environment),
  ];
}

function section(title, values) {
  const entries = Object.entries(values);
  if (!entries.length) return [];
  return [
    h("h3", {}, title),
    h("dl", { class: "facts-list" }, entries.map(([name, value]) => [h("dt", {}, visible(name)), h("dd", {}, visible(String(value)))])),
  ];
}

function serviceAddresses(experiment, service, data) {
  const rows = [];
  const own = Object.entries(data.addresses).filter(([name]) => name === service.name || new RegExp(`^${service.name}-\\d+$`).test(name));
  for (const [name, value] of own) rows.push([h("dt", {}, own.length > 1 ? name : "address"), h("dd", {}, value)]);
  if (!rows.length && service.port) rows.push([h("dt", {}, "port"), h("dd", {}, String(service.port))]);
  if (service.encrypted) rows.push([h("dt", {}, "encrypted"), h("dd", {}, "yes")]);
  if (service.exposed) {
    rows.push([h("dt", {}, "open"), externalAddress(experiment, service, data.exposed[service.name])]);
  }
  return h("dl", { class: "facts-list" }, rows);
}

// Return the link to an exposed service, or a button if it is not reachable from here.
function externalAddress(experiment, service, known) {
  const link = (address) => h("a", { href: `http://${address}/`, target: "_blank", rel: "noopener noreferrer" }, address);
  const cell = h("dd", {});
  const show = ({ address, forwarded }) => replace(cell, link(address), forwarded ? " (forwarded until symphony ui exits)" : "");
  if (known) show({ address: known });
  else if (experiment.session.read_only) replace(cell, "no address yet; symphony visit forwards a port");
  else {
    // The link replaces the button, which had the focus.
    const showInstead = (answer) => {
      show(answer);
      cell.querySelector("a").focus();
    };
    replace(cell, forwardButton(experiment, service.name, showInstead));
  }
  return cell;
}
