// A small curve of one value over time.

import { h, setText, svg } from "./dom.js";
import { duration } from "./format.js";

const WIDTH = 320;
const HEIGHT = 56;

export class Chart {
  constructor(title, format, least) {
    this.title = title;
    this.format = format;
    // The top of the chart is at least this value, so that noise does not look like a load.
    this.least = least;
    this.value = h("strong", {});
    this.highest = h("span", { class: "dim" });
    this.range = h("span", { class: "dim" });
    this.area = svg("path", { class: "chart-area" });
    this.line = svg("path", { class: "chart-line" });
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "chart", role: "img" }, this.area, this.line);
    this.element = h(
      "figure",
      { class: "chart-box" },
      h("figcaption", {}, h("span", {}, title), this.value),
      this.picture,
      h("p", { class: "chart-range" }, this.range, this.highest),
    );
  }

  // Draw the points, which are pairs of a time and a value.
  draw(points) {
    if (!points.length) {
      this.element.hidden = true;
      return;
    }
    this.element.hidden = false;
    const values = points.map(([, value]) => value);
    const top = Math.max(this.least, ...values) * 1.05;
    const [start] = points[0];
    const [end, last] = points.at(-1);
    const span = Math.max(1, end - start);
    const steps = points.map(([at, value]) => {
      const x = points.length === 1 ? WIDTH : ((at - start) / span) * WIDTH;
      return `${x.toFixed(1)} ${(HEIGHT - 1 - (value / top) * (HEIGHT - 2)).toFixed(1)}`;
    });
    if (points.length === 1) steps.unshift(`0 ${steps[0].split(" ")[1]}`);
    this.line.setAttribute("d", `M${steps.join("L")}`);
    this.area.setAttribute("d", `M0 ${HEIGHT}L${steps.join("L")}L${WIDTH} ${HEIGHT}Z`);
    const highest = this.format(Math.max(...values));
    setText(this.value, this.format(last));
    setText(this.highest, `highest ${highest}`);
    setText(this.range, `last ${duration(span)}`);
    this.picture.setAttribute("aria-label", `${this.title}: now ${this.format(last)}, highest ${highest}, over ${duration(span)}`);
  }
}

