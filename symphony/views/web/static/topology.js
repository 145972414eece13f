// The topology as a drawing: boxes for processes and services, and lines between them.
// The server has computed the positions.

import { h, replace, setClass, setText, svg } from "./dom.js";
import { STATES, sign, stateClass, stateWords } from "./format.js";

const MIN_SCALE = 0.55;
const MAX_SCALE = 2;
const LINE_HEIGHT = 17;
const PADDING = 12;

export class TopologyView {
  constructor(experiment) {
    this.experiment = experiment;
    this.zoom = 1;
    this.canvas = h("div", { class: "canvas", tabindex: "0", role: "group", "aria-label": "Topology" });
    const button = (text, label, run) =>
      h("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick: run }, text);
    this.element = h(
      "div",
      { class: "topology" },
      this.canvas,
      h(
        "div",
        { class: "zoom" },
        button("−", "Smaller", () => this.setZoom(this.zoom / 1.25)),
        button("⤢", "Fit", () => this.setZoom(1)),
        button("+", "Larger", () => this.setZoom(this.zoom * 1.25)),
      ),
      legend(),
    );
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.canvas);
    this.boxes = new Map();
  }

  close() {
    this.observer.disconnect();
  }

  setZoom(zoom) {
    this.zoom = Math.min(4, Math.max(0.25, zoom));
    this.fit();
  }

  draw(changed) {
    const all = changed.has("all");
    const topology = this.experiment.store.topology;
    if (topology !== this.drawn) {
      this.drawn = topology;
      this.build(topology);
    }
    if (all || changed.has("topology") || changed.has("processes")) this.drawStates();
    if (topology && (all || changed.has("topology") || changed.has("addresses"))) this.drawAddresses();
    if (all) this.drawSelection();
  }

  build(topology) {
    this.boxes.clear();
    if (!topology) {
      const text = this.experiment.store.experiment?.state
        ? "The topology is not known. The table of processes shows their states."
        : "Loading…";
      replace(this.canvas, h("p", { class: "empty" }, text));
      return;
    }
    const marker = svg(
      "marker",
      { id: "head", viewBox: "0 0 8 8", refX: 7.5, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" },
      svg("path", { class: "head", d: "M0 0.5L8 4L0 7.5z" }),
    );
    this.lines = topology.lines.map((line) => {
      const path = svg("path", { class: `line ${line.kind}`, d: line.path, "marker-end": "url(#head)" });
      const title = svg("title", {}, line.title);
      const target = svg("path", { class: "line-target", d: line.path }, title);
      const label = svg("text", { class: "line-label", "aria-hidden": "true" });
      const service = [line.from, line.to].find((key) => key.startsWith("service "));
      if (service) target.addEventListener("click", () => this.experiment.select(service));
      for (const [event, on] of [["mouseenter", true], ["mouseleave", false]]) {
        target.addEventListener(event, () => light({ path, label }, on));
      }
      return { line, path, target, title, label, service: service?.slice("service ".length) };
    });
    this.drawing = svg(
      "svg",
      { viewBox: `0 0 ${topology.width + PADDING} ${topology.height + PADDING}`, class: "drawing" },
      svg("defs", {}, marker),
      this.lines.map(({ path, target }) => [path, target]),
      topology.boxes.map((box) => this.box(box)),
      this.lines.map(({ label }) => label),
    );
    replace(this.canvas, this.drawing);
    for (const { box, title, mark } of this.boxes.values()) {
      // The font of the browser can be wider than the server assumes.
      const space = box.width - 2 * PADDING - (mark ? LINE_HEIGHT : 0);
      if (title.getComputedTextLength() > space) {
        title.setAttribute("textLength", space);
        title.setAttribute("lengthAdjust", "spacingAndGlyphs");
      }
    }
    this.fit();
  }

  box(box) {
    const radius = { service: Math.min(box.height / 2, 16), group: 10, process: 7 }[box.kind];
    const rect = (dx, dy) =>
      svg("rect", { class: "shape", x: box.x + dx, y: box.y + dy, width: box.width, height: box.height, rx: radius });
    const title = svg("text", { class: box.kind === "group" ? "small" : "name" }, box.title);
    const note = svg("text", { class: "small" }, box.note);
    const mark = box.kind === "process" ? svg("text", { class: "mark", "aria-hidden": "true" }) : null;
    const textX = box.x + PADDING + (mark ? LINE_HEIGHT : 0);
    place(title, textX, box.y + LINE_HEIGHT + (box.kind === "group" ? 0 : box.height / 2 - LINE_HEIGHT - 4.5));
    place(note, textX, box.y + box.height / 2 + LINE_HEIGHT - 4.5);
    if (box.kind === "service" && !box.note) place(title, textX, box.y + box.height / 2 + 4.5);
    if (mark) place(mark, box.x + PADDING, box.y + box.height / 2 + 5);
    const group = svg(
      "g",
      { tabindex: "0", role: "button", "data-key": box.key },
      box.stack ? rect(4, -4) : null,
      rect(0, 0),
      mark,
      title,
      note,
    );
    const open = () => this.experiment.select(this.experiment.selection === box.key ? "" : box.key);
    group.addEventListener("click", open);
    group.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open();
      }
    });
    const highlight = (on) => () => this.highlight(box.key, on);
    group.addEventListener("mouseenter", highlight(true));
    group.addEventListener("mouseleave", highlight(false));
    group.addEventListener("focus", highlight(true));
    group.addEventListener("blur", highlight(false));
    this.boxes.set(box.key, { box, group, mark, note, title });
    return group;
  }

  highlight(key, on) {
    for (const each of this.lines) light(each, on && (each.line.from === key || each.line.to === key));
  }

  // Write the addresses of the services, which arrive later, at the lines.
  drawAddresses() {
    const { addresses } = this.experiment.store;
    for (const { line, path, title, label, service } of this.lines ?? []) {
      if (!service || line.kind !== "connects") continue;
      const found = addresses[service];
      setText(title, found ? `${line.title} at ${found}` : line.title);
      setText(label, found ? `${service} ${found}` : service);
      const middle = path.getPointAtLength(path.getTotalLength() / 2);
      place(label, middle.x, middle.y - 6);
    }
    this.drawStates();
  }

  fit() {
    if (!this.drawing || !this.drawn) return;
    const width = this.drawn.width + PADDING;
    const available = this.canvas.clientWidth - 2;
    const fitted = Math.min(1.15, Math.max(MIN_SCALE, available / width));
    const scale = Math.min(MAX_SCALE * 2, fitted * this.zoom);
    this.drawing.style.width = `${width * scale}px`;
    this.drawing.style.height = `${(this.drawn.height + PADDING) * scale}px`;
  }

  drawStates() {
    const store = this.experiment.store;
    for (const { box, group, mark, note } of this.boxes.values()) {
      if (box.kind === "service") {
        setClass(group, `box service${box.bound ? "" : " missing"}${this.isSelected(box) ? " selected" : ""}`);
        const found = store.addresses[box.key.slice("service ".length)];
        const notes = [box.note, found && `at ${found}`].filter(Boolean);
        group.setAttribute("aria-label", [`service ${box.title}`, ...notes].join(", "));
        continue;
      }
      const counts = store.counts(box.processes);
      const present = STATES.filter((state) => counts[state]);
      const worst = box.processes.length ? (present[0] ?? "unknown") : "stopped";
      const processes = box.processes.map((name) => store.processes.get(name)).filter(Boolean);
      const isReady = processes.every((process) => process.ready || process.state !== "running");
      let words = present.map((state) => `${counts[state]} ${state}`).join(", ");
      let text = present.map((state) => `${sign(state)} ${counts[state]}`).join("  ");
      if (box.processes.length === 1 && processes.length === 1) words = text = stateWords(processes[0]);
      else if (present.length === 1) text = words;
      if (!isReady && box.processes.length > 1) words += ", not all ready";
      setClass(group, `box ${box.kind} ${stateClass(worst)}${isReady ? "" : " unready"}${this.isSelected(box) ? " selected" : ""}`);
      group.setAttribute("aria-label", `${box.kind} ${box.title}: ${words || "no processes"}`);
      if (box.kind === "process") {
        setText(note, text);
        setText(mark, worst === "running" && !isReady ? "◐" : sign(worst));
      }
    }
  }

  isSelected(box) {
    const { selection } = this.experiment;
    if (box.key === selection) return true;
    return box.stack && selection.startsWith("process ") && box.processes.includes(selection.slice("process ".length));
  }

  drawSelection() {
    for (const { box, group } of this.boxes.values()) {
      group.classList.toggle("selected", this.isSelected(box));
      if (this.isSelected(box)) group.setAttribute("aria-pressed", "true");
      else group.removeAttribute("aria-pressed");
    }
  }
}

function light({ path, label }, on) {
  path.classList.toggle("lit", on);
  label.classList.toggle("lit", on);
}

function place(text, x, y) {
  text.setAttribute("x", x);
  text.setAttribute("y", y);
}

function legend() {
  const item = (kind, text) =>
    h(
      "span",
      { class: "legend-item" },
      svg("svg", { width: 34, height: 8, "aria-hidden": "true" }, svg("path", { class: `line ${kind}`, d: "M0 4H28" }), svg("path", { class: "head", d: "M26 0.5L34 4L26 7.5z" })),
      text,
    );
  return h(
    "p",
    { class: "legend" },
    item("connects", "connects to a service"),
    item("serves", "is served by"),
    item("starts-after", "starts after"),
  );
}
