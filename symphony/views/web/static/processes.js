// The table of processes. Only the visible rows exist as elements, because there can be thousands.

import { h, setClass, setText } from "./dom.js";
import { byName, bytes, cores, duration, percent, plural, reason, sign, stateClass, stateWords } from "./format.js";

const ROW_HEIGHT = 38;
const NARROW_ROW_HEIGHT = 62;
const EXTRA_ROWS = 8;

const COLUMNS = [
  { key: "name", title: "Process", text: (process) => process.path },
  { key: "state", title: "State", text: (process) => stateWords(process) },
  { key: "exit", title: "Exit", number: true, text: (process) => process.exit_code ?? "" },
  { key: "restarts", title: "Restarts", number: true, text: (process) => process.restarts || "" },
  { key: "age", title: "Age", number: true, text: (process, _, now) => (process.started ? duration((process.ended && process.ended_at ? process.ended_at : now) - process.started) : "") },
  { key: "cpu", title: "CPU", number: true, value: (usage) => usage?.cpu, text: (_, usage) => show(usage?.cpu, cores) },
  { key: "memory", title: "Memory", number: true, value: (usage) => usage?.memory, text: (_, usage) => show(usage?.memory, bytes) },
  { key: "gpu", title: "GPU", number: true, value: (usage) => usage?.gpu_utilization, text: (_, usage) => show(usage?.gpu_utilization, percent) || show(usage?.gpu_memory, bytes) },
  { key: "reason", title: "Reason", text: (process, _, now) => reason(process, now) },
];

function show(value, format) {
  return value === null || value === undefined ? "" : format(value);
}

export class ProcessesView {
  constructor(experiment) {
    this.experiment = experiment;
    this.sort = { key: "attention", descending: false };
    this.rows = [];
    this.focused = 0;
    this.elements = [];
    this.count = h("span", { class: "dim", role: "status" });
    this.search = h("input", {
      type: "search",
      placeholder: "Filter processes",
      "aria-label": "Filter processes by name, state or reason",
      oninput: () => experiment.redraw("processes"),
    });
    this.headers = COLUMNS.map((column) =>
      h(
        "span",
        { role: "columnheader", class: `cell cell-${column.key}${column.number ? " number" : ""}` },
        h("button", { type: "button", onclick: () => this.sortBy(column.key) }, column.title),
      ),
    );
    this.space = h("div", { class: "rows-space", role: "rowgroup" });
    this.scroller = h(
      "div",
      { class: "rows", role: "grid", "aria-label": "Processes", tabindex: "0", onscroll: () => this.drawRows() },
      h("div", { class: "row header", role: "row", "aria-rowindex": "1" }, this.headers),
      this.space,
    );
    this.scroller.addEventListener("keydown", (event) => this.handleKey(event));
    this.element = h("div", { class: "processes" }, h("div", { class: "toolbar" }, this.search, this.count), this.scroller);
    this.observer = new ResizeObserver(() => this.drawRows());
    this.observer.observe(this.scroller);
  }

  close() {
    this.observer.disconnect();
  }

  sortBy(key) {
    this.sort = this.sort.key === key ? { key, descending: !this.sort.descending } : { key, descending: false };
    for (const [index, column] of COLUMNS.entries()) {
      const isSorted = column.key === this.sort.key;
      this.headers[index].setAttribute("aria-sort", isSorted ? (this.sort.descending ? "descending" : "ascending") : "none");
    }
    this.experiment.redraw("all");
  }

  draw(changed) {
    const isUsed = ["all", "processes", "usage"].some((part) => changed.has(part));
    if (isUsed) {
      this.filterRows();
      this.element.classList.toggle("without-gpu", ![...this.experiment.store.usage.values()].some((usage) => usage.devices.length || usage.gpu_utilization !== null));
    }
    this.drawRows();
  }

  filterRows() {
    const store = this.experiment.store;
    const wanted = this.search.value.trim().toLowerCase();
    let rows = store.list();
    const total = rows.length;
    if (wanted) {
      rows = rows.filter((process) => `${process.path} ${process.state} ${process.reason}`.toLowerCase().includes(wanted));
    }
    this.rows = rows.sort((first, second) => this.compare(first, second));
    setText(this.count, wanted ? `${this.rows.length} of ${plural(total, "process")}` : plural(total, "process"));
    this.scroller.setAttribute("aria-rowcount", String(this.rows.length + 1));
  }

  compare(first, second) {
    const { key, descending } = this.sort;
    const store = this.experiment.store;
    let result = 0;
    if (key === "attention") result = first.attention - second.attention;
    else {
      const column = COLUMNS.find((candidate) => candidate.key === key);
      if (key === "age") result = (second.started ?? 0) - (first.started ?? 0);
      else if (key === "exit") result = (first.exit_code ?? -1) - (second.exit_code ?? -1);
      else if (key === "restarts") result = first.restarts - second.restarts;
      else if (column.value) result = (column.value(store.usage.get(second.name)) ?? -1) - (column.value(store.usage.get(first.name)) ?? -1);
      else result = byName(column.text(first, null, 0), column.text(second, null, 0));
    }
    if (descending) result = -result;
    return result || byName(first.path, second.path);
  }

  get rowHeight() {
    return this.scroller.clientWidth < 640 ? NARROW_ROW_HEIGHT : ROW_HEIGHT;
  }

  drawRows() {
    const height = this.rowHeight;
    this.space.style.height = `${this.rows.length * height}px`;
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / height) - EXTRA_ROWS);
    const last = Math.min(this.rows.length, Math.ceil((this.scroller.scrollTop + this.scroller.clientHeight) / height) + EXTRA_ROWS);
    const now = this.experiment.store.now();
    while (this.elements.length < last - first) {
      const row = this.createRow();
      this.elements.push(row);
      this.space.append(row.element);
    }
    while (this.elements.length > last - first) this.elements.pop().element.remove();
    for (let index = first; index < last; index += 1) this.drawRow(this.elements[index - first], index, height, now);
  }

  createRow() {
    const cells = COLUMNS.map((column) => h("span", { role: "gridcell", class: `cell cell-${column.key}${column.number ? " number" : ""}` }));
    const mark = h("span", { class: "mark", "aria-hidden": "true" });
    const nameText = h("span", { class: "text" });
    cells[0].append(mark, nameText);
    const row = { cells, mark, nameText, index: 0, element: null };
    row.element = h("div", { role: "row", tabindex: "-1", onclick: () => this.open(row.index) }, cells);
    return row;
  }

  drawRow(row, index, height, now) {
    const process = this.rows[index];
    const usage = this.experiment.store.usage.get(process.name);
    const isSelected = this.experiment.selection === `process ${process.name}`;
    row.index = index;
    setClass(row.element, `row ${stateClass(process.state)}${process.state === "running" && !process.ready ? " unready" : ""}${isSelected ? " selected" : ""}`);
    row.element.style.transform = `translateY(${index * height}px)`;
    row.element.tabIndex = index === this.focused ? 0 : -1;
    row.element.setAttribute("aria-rowindex", String(index + 2));
    row.element.setAttribute("aria-selected", String(isSelected));
    row.element.dataset.process = process.name;
    setText(row.mark, process.state === "running" && !process.ready ? "◐" : sign(process.state));
    for (const [number, column] of COLUMNS.entries()) {
      const text = String(column.text(process, usage, now));
      setText(number === 0 ? row.nameText : row.cells[number], text);
      row.cells[number].title = column.number ? "" : text;
    }
  }

  open(index) {
    const process = this.rows[index];
    if (!process) return;
    this.focused = index;
    const key = `process ${process.name}`;
    this.experiment.select(this.experiment.selection === key ? "" : key);
  }

  handleKey(event) {
    if (event.target.closest(".header")) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / this.rowHeight) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.open(this.focused);
    } else if (event.key in steps) {
      event.preventDefault();
      this.focused = Math.min(this.rows.length - 1, Math.max(0, this.focused + steps[event.key]));
      const top = this.focused * this.rowHeight;
      const header = this.rowHeight;
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      if (top + 2 * header > this.scroller.scrollTop + this.scroller.clientHeight) this.scroller.scrollTop = top + 2 * header - this.scroller.clientHeight;
      this.drawRows();
      this.elements.find((row) => row.index === this.focused)?.element.focus();
    }
  }
}
