// The events of an experiment, the newest first.

import { h, replace, setText } from "./dom.js";
import { plural, time, visible } from "./format.js";

const MAX_SHOWN = 300;
const SIGNS = {
  launched: "▶", waiting: "…", started: "▶", ready: "●", "not-ready": "◐", unhealthy: "✕", signaled: "⚡", restarting: "↻",
  stopping: "◌", exited: "■", stopped: "■", "never-started": "✕", changed: "✎", warning: "!", finished: "⚑",
};

export class EventsView {
  constructor(experiment, isInPanel = false) {
    this.experiment = experiment;
    this.isInPanel = isInPanel;
    this.limit = MAX_SHOWN;
    this.search = h("input", { type: "search", placeholder: "Filter events", "aria-label": "Filter events", oninput: () => this.draw(new Set(["events"])) });
    this.count = h("span", { class: "dim", role: "status" });
    this.list = h("ol", { class: "events" });
    this.more = h("button", { type: "button", class: "small-button", hidden: true, onclick: () => { this.limit *= 4; this.draw(new Set(["events"])); } }, "More");
    this.element = h("div", { class: "events-view" }, h("div", { class: "toolbar" }, this.search, this.count), this.list, this.more);
  }

  draw(changed) {
    if (!["all", "events"].some((part) => changed.has(part))) return;
    const names = this.experiment.selection ? new Set(this.experiment.selected) : null;
    const wanted = this.search.value.toLowerCase();
    const found = this.experiment.store.events.filter((event) => {
      if (names && !names.has(event.process)) return false;
      return !wanted || `${event.process ?? "experiment"} ${event.kind} ${event.text}`.toLowerCase().includes(wanted);
    });
    setText(this.count, plural(found.length, "event", "events"));
    const shown = found.slice(-this.limit).reverse();
    this.more.hidden = shown.length === found.length;
    replace(this.list, shown.map((event) => this.row(event)));
    if (!shown.length) replace(this.list, h("li", { class: "empty" }, "No events."));
  }

  row(event) {
    const isBad = ["warning", "never-started", "not-ready", "unhealthy"].includes(event.kind) || (event.kind === "exited" && !/^exited with 0\b/.test(event.text));
    return h(
      "li",
      { class: `event-row${isBad ? " bad" : ""}` },
      h("time", { datetime: new Date(event.at * 1000).toISOString() }, time(event.at)),
      h("span", { class: "event-sign", "aria-hidden": "true" }, SIGNS[event.kind] ?? "·"),
      h("span", { class: "event-process" }, event.process ?? "experiment"),
      h("span", { class: "event-text" }, visible(event.text)),
    );
  }
}
