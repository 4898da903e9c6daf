// The page: what is typed goes to /v1/chat/completions, what comes back is shown as it comes. No library, no build step.

const at = (id) => document.getElementById(id);
const messages = [];
const kept = ["system", "temperature", "most", "speculation", "colour"]; // settings that outlive the page; the key does not
let running = null; // AbortController of the answer that is being written
let speeds = [];

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) { bytes /= 1024; unit += 1; }
  return `${bytes.toFixed(unit > 1 ? 1 : 0)} ${units[unit]}`;
}

function headers() {
  const key = at("key").value;
  return { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
}

function turn(role, text = "") {
  const element = document.createElement("article");
  element.className = `turn ${role}`;
  element.textContent = text;
  at("log").append(element);
  at("log").scrollTop = at("log").scrollHeight;
  return element;
}

function addSpan(element, text, drafted) {
  const span = document.createElement("span");
  span.textContent = text;
  if (drafted) span.className = "drafted";
  const log = at("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  element.append(span);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function showStatistics(last) {
  at("acceptance").value = last.draft_acceptance;
  at("acceptance-text").textContent = last.drafted ? `${Math.round(100 * last.draft_acceptance)} % of ${last.drafted}` : "–";
  at("paged-text").textContent = size(last.bytes_paged);
  at("speed-text").textContent = last.tokens_per_second ? `${last.tokens_per_second.toFixed(1)} tokens/s` : "–";
}

async function refresh() {
  try {
    const response = await fetch("/v1/edgespec", { headers: headers() });
    if (!response.ok) return;
    const status = await response.json();
    at("model").textContent = status.model;
    at("memory").value = status.resident_bytes / status.budget_bytes;
    at("memory-text").textContent = `${size(status.resident_bytes)} of ${size(status.budget_bytes)}`;
    showStatistics(status.last);
    if (running && status.last.tokens_per_second) speeds.push(status.last.tokens_per_second);
    plot();
  } catch { /* the server is gone; the next answer will say so */ }
}

function plot() {
  const canvas = at("plot"), draw = canvas.getContext("2d"), scale = window.devicePixelRatio || 1;
  canvas.hidden = speeds.length < 2;
  if (canvas.hidden) return;
  canvas.width = 120 * scale; canvas.height = 32 * scale;
  draw.scale(scale, scale);
  const most = Math.max(...speeds) * 1.1, shown = speeds.slice(-120);
  draw.strokeStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  draw.lineWidth = 2;
  draw.beginPath();
  shown.forEach((speed, place) => draw.lineTo(2 + 116 * place / (shown.length - 1), 30 - 26 * speed / most));
  draw.stroke();
}

async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

function request() {
  const system = at("system").value.trim();
  return {
    messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    temperature: Number(at("temperature").value),
    max_completion_tokens: Number(at("most").value),
    stream: true,
    edgespec: { speculation: at("speculation").checked },
  };
}

async function answer() {
  running = new AbortController();
  speeds = [];
  busy(true);
  const element = turn("assistant");
  let text = "";
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(request()), signal: running.signal,
    });
    if (!response.ok) throw new Error((await response.json()).error.message);
    for await (const event of events(response.body)) {
      if (event.error) throw new Error(event.error.message);
      for (const [piece, drafted] of event.edgespec?.spans ?? []) {
        text += piece;
        addSpan(element, piece, drafted);
      }
      if (event.choices[0]?.finish_reason) finish(element, event);
    }
  } catch (error) {
    if (error.name === "AbortError") addNote(element, "stopped");
    else turn("error", error.message);
  }
  if (text) messages.push({ role: "assistant", content: text });
  else messages.pop();
  running = null;
  busy(false);
  refresh();
}

function finish(element, event) {
  const { tokens, passes, drafted, accepted, tokens_per_second: speed } = event.edgespec;
  const guessed = drafted ? `, ${accepted} of ${drafted} guesses right` : "";
  const cut = event.choices[0].finish_reason === "length" ? ", cut at the most tokens" : "";
  addNote(element, `${tokens} tokens in ${passes} passes${guessed}, ${speed.toFixed(1)} tokens/s${cut}`);
  showStatistics(event.edgespec);
}

function addNote(element, text) {
  const note = document.createElement("small");
  note.className = "note";
  note.textContent = text;
  element.append(note);
}

function busy(on) {
  at("stop").hidden = !on;
  at("send").hidden = on;
  at("log").setAttribute("aria-busy", String(on));
}

function send() {
  const text = at("prompt").value.trim();
  if (!text || running) return;
  at("prompt").value = "";
  messages.push({ role: "user", content: text });
  turn("user", text);
  answer();
}

function remember() {
  const values = Object.fromEntries(kept.map((id) => [id, at(id).type === "checkbox" ? at(id).checked : at(id).value]));
  localStorage.setItem("edgespec", JSON.stringify(values));
  at("log").classList.toggle("coloured", at("colour").checked);
}

function recall() {
  const values = JSON.parse(localStorage.getItem("edgespec") ?? "{}");
  for (const id of kept.filter((id) => id in values)) {
    if (at(id).type === "checkbox") at(id).checked = values[id];
    else at(id).value = values[id];
  }
  at("log").classList.toggle("coloured", at("colour").checked);
}

at("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
at("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && !at("settings").open) running?.abort(); });
at("stop").addEventListener("click", () => running?.abort());
at("clear").addEventListener("click", () => {
  running?.abort();
  messages.length = 0;
  at("log").replaceChildren();
  at("prompt").focus();
});
at("settings-open").addEventListener("click", () => at("settings").showModal());
at("settings").addEventListener("change", remember); // at once, not only when they are closed
at("settings").addEventListener("close", () => { remember(); refresh(); });
recall();
refresh();
setInterval(refresh, 1000);
