// The page: the form is the question, the address bar holds it, the answer follows it.
"use strict";
const form = document.getElementById("question");
const at = (id) => document.getElementById(id);
let engines = [], asked = 0;

function lengthName() { return engine().length.replaceAll("_", "-"); }
function engine() { return engines.find((one) => one.name === form.engine.value) || engines[0]; }
function tokens() { return Math.round(2 ** Number(at("length").value) / 256) * 256; }

function question() {
  const found = { model: form.model.value.trim(), gpu: form.gpu.value.trim(), engine: form.engine.value };
  if (lengthName()) found[lengthName()] = String(tokens());
  found.concurrency = at("concurrency").value;
  for (const field of form.querySelectorAll("[data-input]")) {
    if (field.type === "checkbox") { if (field.checked) found[field.dataset.input] = true; }
    else if (field.value.trim() !== "") found[field.dataset.input] = field.value.trim();
  }
  return found;
}

function fields() {
  const shown = ["gpu", "concurrency", "model", lengthName()];
  for (const [id, common] of [["common", true], ["rest", false]]) {
    const box = at(id);
    box.replaceChildren();
    for (const one of engine().inputs) {
      if (one.common !== common || shown.includes(one.name)) continue;
      const label = document.createElement("label");
      const field = document.createElement(one.choices.length && !one.switch ? "select" : "input");
      field.dataset.input = one.name;
      if (one.switch) field.type = "checkbox";
      for (const choice of field.tagName === "SELECT" ? ["", ...one.choices] : []) field.add(new Option(choice, choice));
      const help = document.createElement("small");
      help.textContent = one.help;
      label.append(one.name + " ", field, help);
      box.append(label);
    }
  }
}

function restore() {
  const held = new URLSearchParams(location.search);
  if (held.get("engine")) form.engine.value = held.get("engine");
  fields();
  for (const [name, value] of held) {
    if (["model", "gpu"].includes(name)) form[name].value = value;
    else if (name === "concurrency") at("concurrency").value = value;
    else if (name === lengthName()) at("length").value = Math.log2(Number(value));
    else set(name, value);
  }
}

function set(name, value) {
  const field = [...form.querySelectorAll("[data-input]")].find((one) => one.dataset.input === name);
  if (!field) return;
  if (field.type === "checkbox") field.checked = value === true || value === "true"; else field.value = value;
}

function pull(flag) {
  // a change that is offered, pulled: --name value --other value
  const words = flag.match(/(?:[^\s']+|'[^']*')+/g) || [];
  for (let index = 0; index < words.length; index += 1) {
    const name = words[index].replace(/^-+/, "");
    const next = words[index + 1];
    const value = next && !next.startsWith("-") ? words[++index].replaceAll("'", "") : true;
    if (name === "concurrency") at("concurrency").value = value;
    else if (name === lengthName()) at("length").value = Math.log2(Number(value));
    else if (name === "gpu") form.gpu.value = value;
    else set(name, value);
  }
  answer();
}

async function answer() {
  const values = question(), number = ++asked;
  at("length-said").textContent = tokens().toLocaleString("en");
  at("concurrency-said").textContent = values.concurrency;
  const query = new URLSearchParams(Object.entries(values).map(([name, value]) => [name, String(value)]));
  history.replaceState(null, "", "?" + query);
  at("link").href = "?" + query;
  for (const kind of ["html", "json", "csv"]) at(kind).href = `/api/serve?form=${kind}&${query}`;
  const response = await fetch("/api/shown", { method: "POST", body: JSON.stringify(values) });
  if (number !== asked) return;
  if (!response.ok) {
    at("mistake").textContent = (await response.json()).error.message;
    return;
  }
  at("mistake").textContent = "";
  at("answer").innerHTML = await response.text();
  for (const row of at("answer").querySelectorAll("table tbody th")) {
    if (!row.textContent.startsWith("--")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = row.textContent;
    button.className = "lever";
    button.addEventListener("click", () => pull(button.textContent));
    row.replaceChildren(button);
  }
}

async function start() {
  engines = await (await fetch("/api/engines")).json();
  for (const one of engines) form.engine.add(new Option(one.title, one.name));
  restore();
  await answer();
  form.addEventListener("input", (event) => { if (event.target === form.engine) fields(); answer(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  at("copy").addEventListener("click", () => navigator.clipboard.writeText(at("answer").querySelector("pre").textContent));
  for (const name of await (await fetch("/api/models")).json()) at("models").append(new Option(name));
}

start();
