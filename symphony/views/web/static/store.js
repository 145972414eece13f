// The state of one experiment, as far as the server has sent it.

const MAX_EVENTS = 2000;
const MAX_CURVE = 900;
// The order of the values in a row of resource use.
const USAGE_FIELDS = ["process", "cpu", "memory", "pss", "open_files", "gpu_memory", "gpu_utilization", "devices"];

export function toUsage(row) {
  return Object.fromEntries(USAGE_FIELDS.map((field, index) => [field, row[index]]));
}

export class Store {
  constructor() {
    this.clockOffset = 0;
    this.clear();
  }

  clear() {
    this.experiment = null;
    this.names = [];
    this.processes = new Map();
    this.topology = null;
    // The addresses of the services inside the experiment.
    this.addresses = {};
    this.events = [];
    this.usage = new Map();
    this.usageAt = null;
    this.usageUnavailable = {};
    this.curves = new Map();
  }

  // Apply a message, and return the names of the parts that have changed.
  apply(message) {
    const changed = new Set();
    if (message.reset) {
      this.clear();
      for (const part of ["experiment", "processes", "topology", "events", "usage"]) changed.add(part);
    }
    if (message.experiment) {
      this.experiment = message.experiment;
      if (this.experiment.now) this.clockOffset = this.experiment.now - Date.now() / 1000;
      changed.add("experiment");
    }
    for (const process of message.processes ?? []) {
      this.processes.set(process.name, process);
      changed.add("processes");
    }
    if (message.names && message.names.join() !== this.names.join()) {
      this.names = message.names;
      const known = new Set(message.names);
      for (const name of this.processes.keys()) if (!known.has(name)) this.processes.delete(name);
      changed.add("processes");
    }
    if ("topology" in message) {
      this.topology = message.topology;
      changed.add("topology");
    }
    if (message.events) {
      const first = message.first_event;
      this.events = this.events.filter((event) => event.number >= first).concat(message.events);
      this.events.splice(0, this.events.length - MAX_EVENTS);
      changed.add("events");
    }
    if (message.usage) {
      this.applyUsage(message);
      changed.add("usage");
    }
    return changed;
  }

  applyUsage(message) {
    this.usageUnavailable = message.usage_unavailable;
    this.usageAt = message.usage_at;
    this.usage = new Map(message.usage.map((row) => [row[0], toUsage(row)]));
    for (const [name, curve] of this.curves) {
      const usage = this.usage.get(name);
      if (!usage || (curve.length && curve.at(-1).at >= message.usage_at)) continue;
      curve.push({ at: message.usage_at, ...usage });
      if (curve.length > MAX_CURVE) curve.splice(0, curve.length - MAX_CURVE);
    }
  }

  // Keep the curve of a process from now on, beginning with earlier samples.
  keepCurve(name, samples) {
    const curve = samples.map((row) => ({ ...toUsage([name, ...row.slice(1)]), at: row[0] }));
    this.curves.clear();
    this.curves.set(name, curve);
  }

  // The time of the clock of the backend, in seconds since the epoch.
  now() {
    return Date.now() / 1000 + this.clockOffset;
  }

  list() {
    return this.names.map((name) => this.processes.get(name)).filter(Boolean);
  }

  counts(names) {
    const counts = {};
    for (const name of names) {
      const state = this.processes.get(name)?.state;
      if (state) counts[state] = (counts[state] ?? 0) + 1;
    }
    return counts;
  }
}
