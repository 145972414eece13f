// The output of processes. Only the visible lines exist as elements. Lines are text, whatever they
// contain.

import { h, replace, setText } from "./dom.js";
import { address } from "./connection.js";
import { time, visible } from "./format.js";

const MAX_LINES = 10000;
const LINE_HEIGHT = 19;
// Wrapped lines have different heights, so fewer of them are shown.
const MAX_WRAPPED_LINES = 1000;
const EARLIER_LINES = 10000;
const NAME_COLOURS = 8;

export class OutputView {
  constructor(experiment) {
    this.experiment = experiment;
    this.lines = [];
    this.begunCount = 0;
    this.matches = null;
    this.isFollowing = true;
    this.isWrapped = false;
    this.wantedLines = null;
    this.isDue = false;
    this.elements = [];

    this.search = h("input", { type: "search", placeholder: "Search the shown lines", "aria-label": "Search the shown lines", oninput: () => this.filter() });
    this.onlyMatches = h("input", { type: "checkbox", onchange: () => this.filter() });
    this.wrap = h("input", { type: "checkbox", onchange: () => this.setWrapped(this.wrap.checked) });
    this.follow = h("button", { type: "button", class: "small-button", "aria-pressed": "true", onclick: () => this.setFollowing(!this.isFollowing) }, "Follow");
    this.earlier = h("button", { type: "button", class: "small-button", onclick: () => this.loadEarlier() }, "Earlier lines");
    this.download = h("span", { class: "downloads" });
    this.status = h("span", { class: "dim", role: "status" });
    this.note = h("p", { class: "gap-note", hidden: true });
    this.space = h("div", { class: "lines-space" });
    this.scroller = h("div", { class: "lines", tabindex: "0", role: "region", "aria-label": "Output", onscroll: () => this.onScroll() }, this.space);
    this.element = h(
      "div",
      { class: "output" },
      h(
        "div",
        { class: "toolbar" },
        this.search,
        h("label", {}, this.onlyMatches, "only matches"),
        h("label", {}, this.wrap, "wrap"),
        this.follow,
        this.earlier,
        this.download,
        this.status,
      ),
      this.note,
      this.scroller,
    );
    this.observer = new ResizeObserver(() => this.drawLines());
    this.observer.observe(this.scroller);
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.findNext(event.shiftKey ? -1 : 1);
    });
  }

  close() {
    this.observer.disconnect();
  }

  add(message) {
    this.lines.length -= this.begunCount;
    if (message.reset) {
      this.lines = [];
      this.colours = new Map();
    }
    if (message.skipped && !message.reset) {
      this.lines.push({ gap: true, text: `… ${message.skipped} lines were written too fast to be shown; download the log to read them` });
    }
    this.lines.push(...message.lines.map(toLine));
    if (message.reset) this.hasEarlier = message.skipped > 0 || message.lines.length >= (this.wantedLines ?? 1000);
    // The lines that are still being written come last.
    this.lines.push(...message.begun.map(toLine));
    this.begunCount = message.begun.length;
    if (this.lines.length > MAX_LINES) this.lines.splice(0, this.lines.length - MAX_LINES);
    this.hasEnded = message.ended;
    this.isDue = true;
    if (this.query) this.filter();
    this.experiment.redraw("output");
  }

  // --- options ---

  get query() {
    return this.search.value.toLowerCase();
  }

  filter() {
    const query = this.query;
    const isMatch = (line) => !line.gap && `${line.process ?? ""} ${line.text}`.toLowerCase().includes(query);
    this.matchCount = query ? this.lines.reduce((count, line) => count + isMatch(line), 0) : 0;
    this.matches = query && this.onlyMatches.checked ? this.lines.filter(isMatch) : null;
    this.isDue = true;
    this.drawLines();
  }

  findNext(step) {
    const shown = this.shownLines;
    const query = this.query;
    if (!query || !shown.length || this.isWrapped) return;
    let index = this.found ?? (step > 0 ? -1 : shown.length);
    for (let tried = 0; tried < shown.length; tried += 1) {
      index = (index + step + shown.length) % shown.length;
      if (shown[index].text.toLowerCase().includes(query)) {
        this.found = index;
        this.setFollowing(false);
        this.scroller.scrollTop = Math.max(0, index * LINE_HEIGHT - this.scroller.clientHeight / 2);
        this.drawLines();
        return;
      }
    }
  }

  setWrapped(isWrapped) {
    this.isWrapped = isWrapped;
    this.element.classList.toggle("wrapped", isWrapped);
    replace(this.space);
    this.elements = [];
    this.isDue = true;
    this.drawLines();
  }

  setFollowing(isFollowing) {
    this.isFollowing = isFollowing;
    this.follow.setAttribute("aria-pressed", String(isFollowing));
    if (isFollowing) this.scrollToEnd();
  }

  loadEarlier() {
    this.wantedLines = EARLIER_LINES;
    this.setFollowing(false);
    this.experiment.observe();
  }

  onScroll() {
    const rest = this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight;
    // The user scrolls up to read, and down to the end to follow again.
    if (!this.isScrolling) this.isFollowing = rest < 2 * LINE_HEIGHT;
    this.isScrolling = false;
    this.follow.setAttribute("aria-pressed", String(this.isFollowing));
    this.drawLines();
  }

  scrollToEnd() {
    const end = this.scroller.scrollHeight - this.scroller.clientHeight;
    if (Math.abs(this.scroller.scrollTop - end) > 1) {
      this.isScrolling = true;
      this.scroller.scrollTop = end;
    }
  }

  // --- drawing ---

  get shownLines() {
    return this.matches ?? this.lines;
  }

  draw(changed) {
    if (changed.has("all") || changed.has("processes")) this.drawDownloads();
    if (this.isDue || changed.has("all")) this.drawLines();
  }

  drawDownloads() {
    const names = this.experiment.selected;
    const key = names.join();
    this.element.classList.toggle("single", names.length === 1);
    if (key === this.downloadKey) return;
    this.downloadKey = key;
    const { backend, name } = this.experiment;
    replace(
      this.download,
      names.length === 1
        ? h("a", { href: address("log", { backend, experiment: name, process: names[0], download: "1" }), download: "" }, "Download")
        : null,
    );
  }

  drawLines() {
    this.isDue = false;
    const shown = this.shownLines;
    const words = [`${shown.length} lines`];
    if (this.query) words.push(`${this.matchCount} with matches`);
    if (this.hasEnded) words.push("the processes have exited");
    setText(this.status, this.lines.length ? words.join(", ") : this.hasEnded ? "no output" : "waiting for output");
    this.earlier.hidden = !this.hasEarlier || this.wantedLines !== null;
    if (this.isWrapped) this.drawWrapped(shown);
    else this.drawVisible(shown);
    if (this.isFollowing) this.scrollToEnd();
  }

  drawVisible(shown) {
    this.space.style.height = `${shown.length * LINE_HEIGHT}px`;
    if (this.isFollowing) this.scrollToEnd();
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / LINE_HEIGHT) - 10);
    const last = Math.min(shown.length, first + Math.ceil(this.scroller.clientHeight / LINE_HEIGHT) + 20);
    while (this.elements.length < last - first) {
      const element = h("div", { class: "line-row" });
      this.elements.push(element);
      this.space.append(element);
    }
    while (this.elements.length > last - first) this.elements.pop().remove();
    for (let index = first; index < last; index += 1) {
      const element = this.elements[index - first];
      element.style.transform = `translateY(${index * LINE_HEIGHT}px)`;
      this.drawLine(element, shown[index], index === this.found);
    }
  }

  drawWrapped(shown) {
    this.space.style.height = "";
    const visibleLines = shown.slice(-MAX_WRAPPED_LINES);
    while (this.elements.length < visibleLines.length) {
      const element = h("div", { class: "line-row" });
      this.elements.push(element);
      this.space.append(element);
    }
    while (this.elements.length > visibleLines.length) this.elements.pop().remove();
    visibleLines.forEach((line, index) => this.drawLine(this.elements[index], line, false));
  }

  drawLine(element, line, isFound) {
    const key = this.query;
    if (element.line === line && element.key === key && element.isFound === isFound) return;
    Object.assign(element, { line, key, isFound });
    if (line.gap) {
      element.className = "line-row gap";
      replace(element, line.text);
      return;
    }
    element.className = `line-row${line.isEvent ? " event" : ""}${isFound ? " found" : ""}`;
    replace(
      element,
      h("span", { class: "line-time" }, line.at === null ? "" : time(line.at)),
      h("span", { class: `line-name name-${this.colourOf(line.process)}` }, line.process ?? ""),
      h("span", { class: "line-text" }, marked(visible(line.text), key)),
    );
  }

  colourOf(process) {
    if (!this.colours?.has(process)) (this.colours ??= new Map()).set(process, this.colours.size % NAME_COLOURS);
    return this.colours.get(process);
  }
}

// A progress bar is a line with many versions, which end with carriage returns. The last one is shown.
function toLine([process, at, isEvent, text]) {
  const versions = text.replace(/\r+$/, "");
  return { process, at, isEvent, text: versions.slice(versions.lastIndexOf("\r") + 1) };
}

// Return a text with marks around the matches.
function marked(text, query) {
  if (!query) return text;
  const parts = [];
  const lower = text.toLowerCase();
  let start = 0;
  let index = lower.indexOf(query);
  while (index >= 0 && parts.length < 200) {
    parts.push(text.slice(start, index), h("mark", {}, text.slice(index, index + query.length)));
    start = index + query.length;
    index = lower.indexOf(query, start);
  }
  parts.push(text.slice(start));
  return parts;
}
