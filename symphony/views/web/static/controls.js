// The controls of experiments and processes, and their questions.

import { h, toast } from "./dom.js";
import { post } from "./connection.js";

const SIGNALS = ["HUP", "INT", "TERM", "USR1", "USR2", "QUIT", "CONT", "STOP", "KILL"];

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
      const isDangerous = control.action !== "start";
      const confirmed = await ask(result.question, null, confirmWord(control), isDangerous);
      if (!confirmed) return;
      result = await post("control", { ...control, confirmed: true });
    }
    toast(result.text);
  });
  view.panel.drawControlsAgain();
}

function confirmWord(control) {
  return { stop: "Stop", restart: "Restart", delete: "Delete", signal: `Send ${control.signal}`, scale: "Change" }[control.action] ?? "Continue";
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

// The buttons for the whole experiment.
export function experimentControls(view) {
  const base = { backend: view.backend, experiment: view.name, processes: null };
  const simple = (action, text, className) => controlButton(text, className, (button) => perform(view, button, { ...base, action }));
  const start = simple("start", "Start", "");
  const restart = simple("restart", "Restart", "");
  const stop = simple("stop", "Stop", "");
  const remove = simple("delete", "Delete", "danger-quiet");
  const box = h("div", { class: "controls", role: "group", "aria-label": "Controls of the experiment" });
  if (!view.session.read_only) box.append(start, restart, stop, remove);
  box.update = (experiment) => {
    const isGone = Boolean(experiment.gone);
    const counts = experiment.counts ?? {};
    const running = (counts.running ?? 0) + (counts.pending ?? 0) + (counts.stopping ?? 0);
    // Processes that have succeeded would run again, so they alone are no reason to offer it.
    start.hidden = !(counts.stopped || counts.failed || counts.unknown) || isGone;
    stop.hidden = running === 0 || isGone;
    restart.hidden = isGone;
    remove.hidden = isGone;
  };
  return box;
}

// The buttons for selected processes. `processes` are their statuses.
export function processControls(view, names, processes) {
  if (view.session.read_only || !names.length) return h("div", { class: "controls" });
  const base = { backend: view.backend, experiment: view.name, processes: names };
  const simple = (action, text) => controlButton(text, "small-button", (button) => perform(view, button, { ...base, action }));
  const isRunning = processes.some((process) => !process.ended);
  const isStopped = processes.some((process) => process.ended);
  const scaled = scaledName(names);
  return h(
    "div",
    { class: "controls", role: "group", "aria-label": "Controls of the selection" },
    isStopped ? simple("start", "Start") : null,
    simple("restart", "Restart"),
    isRunning ? simple("stop", "Stop") : null,
    isRunning ? controlButton("Signal…", "small-button", (button) => sendSignal(view, button, base)) : null,
    scaled ? controlButton("Scale…", "small-button", (button) => scale(view, button, base, scaled)) : null,
  );
}

async function sendSignal(view, button, base) {
  const choice = h("select", { id: "signal" }, SIGNALS.map((name) => h("option", { value: name }, `SIG${name}`)));
  const content = h("p", {}, h("label", { for: "signal" }, "Signal"), choice);
  const signal = await ask("Send a signal", content, "Continue", false, () => choice.value);
  if (signal) await perform(view, button, { ...base, action: "signal", signal });
}

async function scale(view, button, base, name) {
  const count = view.store.names.filter((process) => replicatedName(process) === name).length;
  const field = h("input", { id: "replicas", type: "number", min: "0", step: "1", required: true, value: String(count) });
  const content = h("p", {}, h("label", { for: "replicas" }, `Replicas of ${name}`), field);
  const wanted = await ask("Change the number of replicas", content, "Continue", false, () => field.value);
  if (wanted === null || wanted === "") return;
  await perform(view, button, { ...base, action: "scale", processes: null, replicas: { [name]: Number(wanted) } });
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
