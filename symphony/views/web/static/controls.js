// The controls of experiments and processes, and their questions.

import { h, toast } from "./dom.js";
import { post } from "./connection.js";

// Show a dialog, and return its value, or null if the user cancels it.
function ask(title, content, confirmText, isDangerous, readValue = () => true) {
  return new Promise((resolve) => {
    const cancel = h("button", { type: "button", value: "" }, "Cancel");
    const confirm = h("button", { type: "submit", class: isDangerous ? "danger" : "primary" }, confirmText);
    const form = h("form", { method: "dialog" }, h("h2", {}, title), content, h("div", { class: "dialog-buttons" }, cancel, confirm));
    const dialog = h("dialog", { "aria-label": title }, form);
    let result = null;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      result = readValue();
      dialog.close();
    });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input, select") ?? cancel).focus();
  });
}

// Run a function while a button is busy, and show its error.
async function runBusy(button, run) {
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  try {
    await run();
  } catch (error) {
    toast(error.message, true);
  } finally {
    button.disabled = false;
    button.removeAttribute("aria-busy");
  }
}

// Carry out a control, after its question has been confirmed.
async function perform(view, button, control) {
  await runBusy(button, async () => {
    let result = await post("control", control);
    if (result.question) {
      const confirmed = await ask(result.question, null, result.confirm, true);
      if (!confirmed) return;
      result = await post("control", { ...control, confirmed: true });
    }
    toast(result.text);
  });
  view.panel.drawControlsAgain();
}

function controlButton(text, className, run) {
  const button = h("button", { type: "button", class: className }, text);
  button.addEventListener("click", () => run(button));
  return button;
}

// The button that forwards a port to an exposed service. `show` is called with the answer.
export function forwardButton(view, service, show) {
  return controlButton("Forward a port", "small-button", (button) =>
    runBusy(button, async () => show(await post("visit", { backend: view.backend, experiment: view.name, service }))),
  );
}

// Return the text with a capital letter at its beginning.
function capitalized(text) {
  return text[0].toUpperCase() + text.slice(1);
}

// The button of a control, which asks for a value first if the control has an entry. `processes`
// are the names of the selected processes, or null for the whole experiment.
function offer(view, control, processes, className) {
  const base = { backend: view.backend, experiment: view.name, action: control.action };
  base.processes = control.whole_experiment ? null : processes;
  const text = capitalized(control.action) + (control.entry ? "…" : "");
  return controlButton(text, className, async (button) => {
    const value = control.entry ? await enter(view, control, processes) : "";
    if (value !== null) await perform(view, button, { ...base, value });
  });
}

// The buttons for the whole experiment.
export function experimentControls(view) {
  const box = h("div", { class: "controls", role: "group", "aria-label": "Controls of the experiment" });
  const offered = view.session.read_only ? [] : view.session.controls.filter((control) => !control.entry);
  const buttons = offered.map((control) => [control, offer(view, control, null, control.whole_experiment ? "danger-quiet" : "")]);
  box.append(...buttons.map(([, button]) => button));
  box.update = (experiment) => {
    const isGone = Boolean(experiment.gone);
    const counts = experiment.counts ?? {};
    const isEffective = {
      running: Boolean(counts.running || counts.pending || counts.stopping),
      // Processes that have succeeded would run again, so they alone are no reason to offer it.
      ended: Boolean(counts.stopped || counts.failed || counts.unknown),
    };
    for (const [control, button] of buttons) button.hidden = isGone || isEffective[control.effective_for] === false;
  };
  return box;
}

// The buttons for selected processes. `processes` are their statuses.
export function processControls(view, names, processes) {
  if (view.session.read_only || !names.length) return h("div", { class: "controls" });
  const isEffective = {
    running: processes.some((process) => !process.ended),
    ended: processes.some((process) => process.ended),
  };
  const isOffered = (control) => {
    if (control.entry?.is_count) return Boolean(scaledName(names));
    return !control.whole_experiment && isEffective[control.effective_for] !== false;
  };
  return h(
    "div",
    { class: "controls", role: "group", "aria-label": "Controls of the selection" },
    view.session.controls.filter(isOffered).map((control) => offer(view, control, names, "small-button")),
  );
}

// Ask for the value of a control, and return it, or null if the user cancels.
async function enter(view, control, names) {
  const { entry } = control;
  const name = entry.is_count ? scaledName(names) : "";
  const field = entryField(view, entry, name);
  const label = name ? `${entry.label} of ${name}` : entry.label;
  const content = h("p", {}, h("label", { for: "entry" }, label), field);
  const value = await ask(capitalized(control.help), content, "Continue", false, () => field.value);
  if (!value) return null;
  return name ? `${name}=${Number(value)}` : value;
}

function entryField(view, entry, name) {
  if (entry.choices) {
    const options = Object.entries(entry.choices).map(([value, text]) => h("option", { value }, text));
    return h("select", { id: "entry" }, options);
  }
  if (!name) return h("input", { id: "entry", required: true, value: entry.default, title: entry.hint });
  const count = view.store.names.filter((process) => replicatedName(process) === name).length;
  return h("input", { id: "entry", type: "number", min: "0", step: "1", required: true, value: String(count) });
}

// Return the name whose replica a process is, such as agent for agent-0.
function replicatedName(process) {
  return process.match(/^(.*)-\d+$/)?.[1];
}

// Return the name whose replicas all of these processes are.
function scaledName(names) {
  const found = new Set(names.map(replicatedName));
  return found.size === 1 ? [...found][0] : undefined;
}
