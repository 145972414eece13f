// The entry of the page: chooses the view for the address, and the colours.

import { h, replace } from "./dom.js";
import { get } from "./connection.js";
import { ExperimentsView } from "./experiments.js";
import { ExperimentView } from "./experiment.js";
import { CompareView, RunView, RunsView } from "./runs.js";

const main = document.getElementById("main");
const THEMES = ["auto", "light", "dark"];
let view = null;
let session = { read_only: false };

// --- colours ---

function stored(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // The browser keeps nothing for this page.
  }
}

function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const button = document.getElementById("theme");
  button.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
  button.setAttribute("aria-label", `Colours: ${theme}`);
  button.title = `Colours: ${theme}`;
}

let theme = THEMES.includes(stored("theme")) ? stored("theme") : "auto";
applyTheme(theme);
document.getElementById("theme").addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  applyTheme(theme);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // The choice lasts until the page is closed.
  }
});

// --- views ---

// Return the parts of the path and the parameters of the address, which is behind the "#".
function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  return {
    parts: path.split("/").filter(Boolean).map(decodeURIComponent),
    parameters: new URLSearchParams(query),
  };
}

function createView(parts) {
  if (parts[0] === "experiment" && parts.length === 3) {
    return new ExperimentView(main, session, parts[1], parts[2]);
  }
  if (parts[0] === "runs") return new RunsView(main);
  if (parts[0] === "run" && parts.length === 2) return new RunView(main, parts[1]);
  if (parts[0] === "compare" && parts.length === 3) return new CompareView(main, parts[1], parts[2]);
  return new ExperimentsView(main);
}

function show() {
  const { parts, parameters } = route();
  const key = parts.join("/");
  if (view === null || view.key !== key) {
    view?.close();
    replace(main);
    view = createView(parts);
    view.key = key;
    window.scrollTo(0, 0);
  }
  view.navigate?.(parameters);
  const place = ["runs", "run", "compare"].includes(parts[0]) ? "runs" : "experiments";
  for (const link of document.querySelectorAll("[data-place]")) {
    if (link.dataset.place === place) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function begin() {
  try {
    session = await get("session");
  } catch (error) {
    replace(
      main,
      h("div", { class: "empty" }, h("h1", {}, "symphony"), h("p", {}, `Cannot show anything: ${error.message}.`)),
    );
    return;
  }
  document.getElementById("read-only").hidden = !session.read_only;
  document.querySelector(".brand").title = `symphony on ${session.host}`;
  window.addEventListener("hashchange", show);
  show();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
begin();
