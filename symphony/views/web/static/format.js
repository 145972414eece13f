// Words, numbers and signs for people.

// Each state has a sign besides its colour.
export const SIGNS = {
  failed: "✕",
  unknown: "?",
  pending: "○",
  stopping: "◌",
  running: "●",
  stopped: "■",
  succeeded: "✓",
};
export const STATES = Object.keys(SIGNS);

export function sign(state) {
  return SIGNS[state] ?? "?";
}

// Return the class of the colours of a state.
export function stateClass(state) {
  return `state-${state in SIGNS ? state : "unknown"}`;
}

// A duration with its two largest units at most, such as 42s, 5m or 2h 3m.
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 120) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 120) return `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours}h ${minutes % 60}m` : `${hours}h`;
  return `${Math.floor(hours / 24)}d`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export function cores(value) {
  return value < 10 ? value.toFixed(2) : value.toFixed(1);
}

export function percent(value) {
  return `${Math.round(value * 100)}%`;
}

export function time(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

export function dateTime(seconds) {
  return new Date(seconds * 1000).toLocaleString([], { hour12: false });
}

export function plural(count, word, words = `${word}es`) {
  return count === 1 ? `1 ${word}` : `${count} ${words}`;
}

// The reason of a process at a time: what remains until a restart or a kill comes first.
export function reason(process, now) {
  if (process.kill_at !== null) {
    const left = Math.ceil(process.kill_at - now);
    return left > 0 ? `kill in ${left} s` : "killed";
  }
  if (process.next_start === null) {
    // Narrow tables have no column for exit codes.
    return process.reason || (process.failed && process.exit_code ? `exit code ${process.exit_code}` : "");
  }
  const left = Math.ceil(process.next_start - now);
  const when = left > 0 ? `in ${left} s` : "now";
  const limited = process.restart_number !== null && process.max_restarts !== null;
  const details = limited
    ? `${process.restart_number} of ${process.max_restarts}, ${process.reason}`
    : process.reason;
  return `restarts ${when} (${details})`;
}

// The state and whether the process is ready, in words.
export function stateWords(process) {
  if (process.state === "running" && !process.ready) {
    return process.late ? "running, not ready in time" : "running, not ready";
  }
  return process.state;
}

const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff]/g;

// Make characters visible that control a terminal or the order of the text, as the command line
// does: \x1b, \u202e.
export function visible(text) {
  return text.replace(CONTROLS, (char) => {
    const code = char.charCodeAt(0).toString(16);
    return code.length > 2 ? `\\u${code.padStart(4, "0")}` : `\\x${code.padStart(2, "0")}`;
  });
}

// Compare names as people do: agent-2 before agent-10.
export const byName = new Intl.Collator(undefined, { numeric: true }).compare;
