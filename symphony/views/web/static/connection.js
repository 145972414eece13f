// Requests to the server, and the stream of changes.

const RESUME_AFTER_HIDDEN_SECONDS = 10;
const connectionText = document.getElementById("connection");

export class RequestError extends Error {}

async function answer(response) {
  let data;
  try {
    data = await response.json();
  } catch {
    data = { error: `the server answered with status ${response.status}` };
  }
  if (!response.ok) throw new RequestError(data.error ?? `status ${response.status}`);
  return data;
}

export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const item of [value].flat()) query.append(name, item);
  }
  const text = query.toString();
  return text ? `api/${path}?${text}` : `api/${path}`;
}

export async function get(path, parameters = {}, options = {}) {
  let response;
  try {
    response = await fetch(address(path, parameters), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError("the server cannot be reached");
  }
  return answer(response);
}

export async function post(path, body) {
  let response;
  try {
    response = await fetch(address(path), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new RequestError("the server cannot be reached");
  }
  return answer(response);
}

function showConnection(kind, text) {
  connectionText.className = `connection ${kind}`;
  connectionText.textContent = text;
}

// The stream of one view. It is closed while the page is hidden, because a browser permits only a
// few connections to a server, and continues at its position.
export class Stream {
  constructor(onMessage) {
    this.onMessage = onMessage;
    this.parameters = null;
    this.position = "";
    this.source = null;
    this.hiddenTimer = null;
    this.onVisibility = () => this.followVisibility();
    document.addEventListener("visibilitychange", this.onVisibility);
  }

  // Observe something else. What the page has already seen of it is not sent again.
  observe(parameters) {
    const text = JSON.stringify(parameters);
    if (this.parameters !== null && JSON.stringify(this.parameters) === text) return;
    this.parameters = parameters;
    this.connect();
  }

  connect() {
    this.source?.close();
    const parameters = { ...this.parameters };
    if (this.position) parameters.since = this.position;
    const source = new EventSource(address("stream", parameters));
    this.source = source;
    source.onopen = () => showConnection("live", "live");
    source.onmessage = (event) => {
      this.position = event.lastEventId;
      this.onMessage(JSON.parse(event.data));
    };
    source.onerror = () => this.explainError(source);
  }

  async explainError(source) {
    if (source !== this.source) return;
    showConnection("lost", "connecting…");
    if (source.readyState !== EventSource.CLOSED) return;
    // The server has refused the stream. Ask why, and try again.
    try {
      await get("session");
    } catch (error) {
      showConnection("lost", error.message);
    }
    setTimeout(() => source === this.source && this.connect(), 2000);
  }

  followVisibility() {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) {
      this.hiddenTimer = setTimeout(() => {
        this.source?.close();
        this.source = null;
        showConnection("lost", "paused");
      }, RESUME_AFTER_HIDDEN_SECONDS * 1000);
    } else if (this.source === null && this.parameters !== null) {
      this.connect();
    }
  }

  close() {
    clearTimeout(this.hiddenTimer);
    document.removeEventListener("visibilitychange", this.onVisibility);
    this.source?.close();
    this.source = null;
    this.parameters = null;
    showConnection("", "");
  }
}
