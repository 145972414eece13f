// Creating elements. Text is always a text node, so texts of processes cannot become HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// Return an HTML element with attributes, event listeners (onclick: function) and children.
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

// Return an SVG element.
export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function replace(element, ...children) {
  element.textContent = "";
  append(element, children);
}

// Set the text of an element. Elements whose text has not changed are left alone.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name) {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

// Tell screen readers something that sighted users see elsewhere.
export function announce(text) {
  const log = document.getElementById("announcements");
  log.append(h("p", {}, text));
  while (log.childElementCount > 20) log.firstElementChild.remove();
}

// Show a message for a while. An error stays until the user closes it.
export function toast(text, isError = false) {
  const close = h("button", { class: "quiet", type: "button", "aria-label": "Close" }, "✕");
  const message = h("div", { class: isError ? "toast error" : "toast" }, h("span", {}, text), close);
  close.addEventListener("click", () => message.remove());
  document.getElementById("toasts").append(message);
  if (!isError) setTimeout(() => message.remove(), 6000);
}

// Return a list of tabs (WAI-ARIA Authoring Practices: Tabs). `choose` is called with the key.
export function tabList(label, tabs, chosen, choose) {
  const buttons = tabs.map(([key, text]) =>
    h(
      "button",
      {
        type: "button",
        role: "tab",
        "data-key": key,
        "aria-selected": String(key === chosen),
        tabindex: key === chosen ? "0" : "-1",
        onclick: () => choose(key),
      },
      text,
    ),
  );
  const list = h("div", { class: "tabs", role: "tablist", "aria-label": label }, buttons);
  list.addEventListener("keydown", (event) => {
    const index = buttons.indexOf(document.activeElement);
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -index, End: buttons.length - 1 - index };
    if (index < 0 || !(event.key in steps)) return;
    event.preventDefault();
    const next = buttons[(index + steps[event.key] + buttons.length) % buttons.length];
    choose(next.dataset.key);
    list.parentElement?.querySelector(`[role=tab][data-key="${next.dataset.key}"]`)?.focus();
  });
  list.mark = (key) => {
    for (const button of buttons) {
      button.setAttribute("aria-selected", String(button.dataset.key === key));
      button.tabIndex = button.dataset.key === key ? 0 : -1;
    }
  };
  return list;
}
