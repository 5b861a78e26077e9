// The live page: reads one snapshot a second and draws it. All texts are set as text, never as HTML.
"use strict";

const PHASES = {
  receive: "#4e79a7", queue: "#edc948", compile: "#b07aa1", place: "#f28e2b",
  execute: "#59a14f", gather: "#76b7b2", send: "#e15759",
};
const OTHER = "#8c959f";
const RETRY_MS = 2000;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
let last = null;
let watching = null;

const get = (id) => document.getElementById(id);

function make(tag, classes = "", text = null, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  if (text !== null) element.textContent = String(text);
  element.append(...children);
  return element;
}

function size(bytes) {
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) { bytes /= 1024; unit += 1; }
  return `${Number(bytes.toPrecision(3))} ${UNITS[unit]}`;
}

function duration(s) {
  if (s < 0.001) return `${(s * 1e6).toFixed(0)} µs`;
  if (s < 1) return `${Number((s * 1e3).toPrecision(3))} ms`;
  if (s < 120) return `${Number(s.toPrecision(3))} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${Math.round(s / 3600)} h`;
}

const count = (n) => Math.round(n).toLocaleString("en");
const rate = (n) => (n >= 100 ? count(n) : String(Number(n.toPrecision(2))));
const hue = (i) => `hsl(${(i * 137.5) % 360} 70% 78%)`;
const client = (name) => name || "all callers";

function colourOf(name) {
  let sum = 0;
  for (const character of name) sum = (sum * 31 + character.codePointAt(0)) % 997;
  return `hsl(${(sum * 137.5) % 360} 55% 55%)`;
}

function number(text, title = "") {
  const cell = make("td", "number", text);
  if (title) cell.title = title;
  return cell;
}

function table(id, head, rows, empty) {
  if (!rows.length) { get(id).replaceChildren(make("p", "faint", empty)); return; }
  const heads = head.map(([text, isNumber]) => make("th", isNumber ? "number" : "", text));
  const cells = (row) => row.map((cell) => (cell instanceof Node && cell.nodeName === "TD" ? cell : make("td", "", null, cell)));
  get(id).replaceChildren(make("table", "", null,
    make("thead", "", null, make("tr", "", null, ...heads)),
    make("tbody", "", null, ...rows.map((row) => make("tr", "", null, ...cells(row))))));
}

function fill(part, colour) {
  const element = make("i", "fill");
  element.style.width = `${Math.min(100, 100 * part)}%`;
  element.style.background = colour;
  return element;
}

function rates(now) {
  if (last === null || last.address !== now.address) return null;
  const seconds = now.time - last.time;
  if (seconds <= 0) return null;
  const before = new Map(last.kernels.map((kernel) => [kernel.name, kernel]));
  const kernels = new Map(now.kernels.map((kernel) => {
    const earlier = before.get(kernel.name) || { calls: 0, failed: 0, execute_s: 0, bytes: 0 };
    const grown = (name) => Math.max(0, kernel[name] - earlier[name]) / seconds;
    return [kernel.name, { calls: grown("calls"), failed: grown("failed"), busy: grown("execute_s"), bytes: grown("bytes") }];
  }));
  return { kernels, calls: Math.max(0, now.ended_calls - last.ended_calls) / seconds };
}

function drawState(now, speed) {
  const mesh = now.mesh;
  const state = mesh.draining ? ["shutting down", "bad"] : mesh.ready ? ["ready", "good"]
    : mesh.missing ? [`waiting for hosts: ${mesh.missing}`, "bad"] : [mesh.restarts ? "mesh restarts" : "mesh starts", "bad"];
  get("state").textContent = state[0];
  get("state").className = `badge ${state[1]}`;
  get("address").textContent = now.address;
  document.title = `${mesh.ready && !mesh.draining ? "" : "(!) "}shardcall ${now.address}`;
  const tiles = [
    [speed ? rate(speed.calls) : "…", "calls/s"], [count(now.queue.calls), "calls in progress"],
    [count(now.queue.queued), "queued"], [count(now.memory.arrays), "arrays"], [size(now.memory.array_bytes), "in arrays"],
    [size(now.memory.program_bytes), "running programs"], [size(now.memory.host_bytes), "host memory"], [count(mesh.restarts), "restarts"],
  ];
  get("tiles").replaceChildren(...tiles.map(([value, text]) => make("div", "tile", null, make("b", "", value), make("span", "", text))));
}

function drawMesh(mesh) {
  const axes = mesh.axes.map(([name, length]) => `${name}=${length}`).join(", ");
  const facts = [`${mesh.device_count} × ${mesh.platform || "…"}`, axes, mesh.ready ? `ready for ${duration(mesh.ready_s)}` : "not ready",
    mesh.spare_ready ? "a spare worker is ready" : "no spare worker"];
  get("mesh-facts").textContent = facts.filter(Boolean).join(" · ");
  const largest = Math.max(1, ...mesh.devices.map((device) => device.bytes));
  get("devices").replaceChildren(...mesh.devices.map((device) => {
    const meter = make("div", "meter", null, fill(device.bytes / largest, hue(device.id)));
    const card = make("div", "device", `${device.id} `, make("span", "faint", size(device.bytes)), meter);
    card.title = `${device.name}, process ${device.process}`;
    return card;
  }));
}

function drawPrincipals(now) {
  const limit = Math.max(1, now.memory.max_array_bytes);
  get("memory").replaceChildren(...now.principals.map((item) => {
    const part = fill(item.bytes / limit, colourOf(item.name));
    part.title = `${client(item.name)}: ${size(item.bytes)}`;
    return part;
  }));
  get("memory").title = `${size(now.memory.array_bytes)} of ${size(limit)}`;
  const rows = now.principals.map((item) => {
    const swatch = make("span", "swatch");
    swatch.style.background = colourOf(item.name);
    return [make("td", "", null, swatch, client(item.name)), number(count(item.arrays)), number(size(item.bytes)),
      number(item.max_bytes === null ? "" : size(item.max_bytes)), number(count(item.programs)), number(count(item.calls)), number(count(item.ended))];
  });
  const head = [["principal"], ["arrays", 1], ["bytes", 1], ["limit", 1], ["programs", 1], ["in progress", 1], ["ended", 1]];
  table("principals", head, rows, "No principals.");
}

function waterfall(call, longest) {
  const chart = make("div", "waterfall");
  const part = (begin, length, colour) => {
    const element = make("i");
    element.style.left = `${100 * begin / longest}%`;
    element.style.width = `${100 * length / longest}%`;
    if (colour) element.style.background = colour; else element.className = "total";
    return element;
  };
  chart.append(part(0, call.s, ""), ...call.phases.map(([name, begin, length]) => part(begin, length, PHASES[name] || OTHER)));
  chart.title = call.phases.map(([name, , length]) => `${name} ${duration(length)}`).join(", ");
  return make("td", "wide-cell", null, chart);
}

function drawCalls(calls) {
  get("legend").replaceChildren(...Object.entries(PHASES).map(([name, colour]) => {
    const swatch = make("span", "swatch");
    swatch.style.background = colour;
    return make("span", "", null, swatch, name);
  }));
  const longest = Math.max(1e-6, ...calls.map((call) => call.s));
  const rows = calls.map((call) => [make("td", call.reason ? "bad" : "", call.kernel || call.method), client(call.client),
    waterfall(call, longest), number(duration(call.s)), number(size(call.bytes)), number(duration(call.ago_s)),
    make("td", call.reason ? "bad" : "code faint", call.reason || call.request_id)]);
  const head = [["call"], ["client"], ["phases"], ["took", 1], ["arrays", 1], ["ago", 1], ["request id or reason"]];
  table("calls", head, rows, "No calls yet.");
}

function blocks(array) {
  const grid = make("span", "blocks");
  const all = array.counts.reduce((product, n) => product * n, 1);
  const across = all / (array.counts[0] || 1);
  // Many blocks along the first axis alone would be a tall column: they are drawn as lines.
  grid.style.gridTemplateColumns = `repeat(${across > 1 || all <= 4 ? Math.min(32, across) : Math.min(16, all)}, auto)`;
  grid.append(...array.blocks.map((devices) => {
    const block = make("i", "", devices.length > 2 ? `${devices[0]}…` : devices.join(","));
    block.style.background = hue(devices[0]);
    block.title = `device ${devices.join(", ")}`;
    return block;
  }));
  const shape = make("span", "faint", ` ${array.counts.join(" × ") || "1"}`);
  return make("td", "", null, grid, shape);
}

function drawArrays(now) {
  const rows = now.arrays.map((array) => [array.name || make("span", "faint", "in a lease"), client(array.principal),
    make("td", "code", `${array.dtype}[${array.shape.join(", ")}]`), make("td", "code", array.spec), blocks(array),
    number(array.pending ? `${size(array.bytes)}, pending` : size(array.bytes))]);
  table("arrays", [["name"], ["principal"], ["type"], ["spec"], ["blocks by device"], ["bytes", 1]], rows, "No arrays on the mesh.");
}

function drawWork(now) {
  get("queue-facts").textContent = `${count(now.queue.calls)} calls in progress, ${count(now.queue.queued)} wait for the mesh`;
  table("queue", [["", 1], ["client"], ["kernel"], ["request id"], ["waits", 1]],
    now.queue.waiting.map((call) => [number(call.position), client(call.client), call.kernel, make("td", "code", call.request_id), number(duration(call.s))]),
    "No call waits.");
  table("streams", [["client"], ["streams", 1], ["unanswered", 1]],
    now.streams.map((stream) => [stream.client, number(count(stream.streams)), number(count(stream.unanswered))]), "No open call streams.");
  table("loops", [["client"], ["request id"], ["iterations"], ["", 1], ["since", 1]],
    now.loops.map((loop) => {
      const all = Math.max(1, loop.iterations + loop.left);
      return [loop.client, make("td", "code", loop.request_id), make("div", "bar", null, fill(loop.iterations / all, PHASES.execute)),
        number(`${count(loop.iterations)} of at most ${count(all)}`), number(duration(loop.s))];
    }), "No loop runs.");
}

function drawKernels(now, speed) {
  const of = (kernel) => (speed && speed.kernels.get(kernel.name)) || { calls: 0, failed: 0, busy: 0, bytes: 0 };
  const sorted = [...now.kernels].sort((one, other) => of(other).calls - of(one).calls || other.calls - one.calls).slice(0, 16);
  const rows = sorted.map((kernel) => {
    const grown = of(kernel);
    return [kernel.name, number(rate(grown.calls)), number(`${Math.round(100 * grown.busy)} %`), number(`${size(grown.bytes)}/s`),
      number(count(kernel.calls)), make("td", kernel.failed ? "number bad" : "number", count(kernel.failed))];
  });
  table("kernels", [["kernel"], ["calls/s", 1], ["on devices", 1], ["arrays", 1], ["calls", 1], ["failed", 1]], rows, "No calls yet.");
}

function drawPrograms(now) {
  const rows = now.programs.map((program) => {
    const name = program.kernels.length > 1 ? `${program.kernel}: ${program.kernels.join(", ")}` : program.kernel;
    return [name, make("td", "code faint", program.key), program.client || make("span", "faint", "the server"),
      number(`${duration(program.compile_s)}${program.from_disk ? ", from disk" : ""}`), number(count(program.hits)),
      number(duration(program.execute_s)), number(size(program.bytes)), number(size(program.device_bytes))];
  });
  const head = [["kernel"], ["key"], ["compiled for"], ["compiled in", 1], ["hits", 1], ["on devices", 1], ["program", 1], ["while it runs", 1]];
  table("programs", head, rows, "No programs.");
}

function drawFaults(now) {
  const mesh = now.mesh;
  table("errors", [["reason"], ["call"], ["client"], ["request id"], ["times", 1], ["ago", 1]],
    now.errors.map((error) => [make("td", "bad", error.reason), error.kernel || error.method, client(error.client),
      make("td", "code", error.request_id), number(count(error.count)), number(duration(error.ago_s))]), "No errors.");
  const causes = Object.entries(mesh.exits).map(([cause, times]) => `${cause} ${times}×`).join(", ");
  get("restarts").textContent = mesh.restarts
    ? `${count(mesh.restarts)} (${causes}); the last one ${duration(mesh.exit_s)} ago: ${mesh.last_exit_reason}` : "None since the server's start.";
  table("hosts", [["host"], ["state"], ["devices", 1], ["sent", 1], ["received", 1]],
    now.hosts.map((host) => [host.name, host.present ? `process ${host.process}` : make("td", "bad", `away for ${duration(host.absent_s)}: ${host.absent_reason}`),
      number(count(host.devices)), number(size(host.sent_bytes)), number(size(host.received_bytes))]), "One host: the server's own.");
}

function draw(now) {
  const speed = rates(now);
  drawState(now, speed);
  drawMesh(now.mesh);
  drawPrincipals(now);
  drawCalls(now.calls);
  drawArrays(now);
  drawWork(now);
  drawKernels(now, speed);
  drawPrograms(now);
  drawFaults(now);
  last = now;
}

function say(text) { get("message").textContent = text; }

async function watch() {
  watching = new AbortController();
  const answer = await fetch("/events", { cache: "no-store", signal: watching.signal });
  if (answer.status === 401) { location.reload(); return; }
  if (!answer.ok) { say(await answer.text()); return; }
  say("");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    if (events.length) draw(JSON.parse(events.at(-1).slice("data: ".length)));
  }
}

function shown() {  // nobody watches a hidden page: the server need not make snapshots for it
  if (!document.hidden) return null;
  return new Promise((resolve) => document.addEventListener("visibilitychange", () => resolve(shown()), { once: true }));
}

async function watchAlways() {
  document.addEventListener("visibilitychange", () => { if (document.hidden && watching) watching.abort(); });
  for (;;) {
    await shown();
    try { await watch(); } catch { /* the server has gone, or the page is hidden */ }
    get("state").textContent = "not connected";
    get("state").className = "badge bad";
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

const openSession = (body) => fetch("/session", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

async function signIn(body) {
  const answer = await openSession(body);
  if (answer.ok) location.reload(); else say(await answer.text());
}

function useKey() {
  const key = location.hash.slice(1);
  if (!key) return;
  history.replaceState(null, "", location.pathname);  // a key stays in no history
  // A page that is signed in uses the key, too, so that it is valid for nobody else.
  if (get("live")) openSession({ key }).catch(() => {}); else signIn({ key });
}

useKey();
window.addEventListener("hashchange", useKey);  // the link was opened where the page is open
if (get("live")) {
  watchAlways();
} else {
  get("sign-in").addEventListener("submit", (event) => {
    event.preventDefault();
    signIn({ token: get("token").value.trim() });
  });
}
