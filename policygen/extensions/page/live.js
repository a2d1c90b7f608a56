// Keeps the open page up to date: fetches it again and replaces the parts that have changed.
"use strict";

const PARTS = "main > header, main section:not(#attempts, #steer), #steering, #said, details.attempt";
const EVERY = 2000; // milliseconds
let tag = null;
let asking = false;
let last = new Map([...document.querySelectorAll(PARTS)].map((part) => [part.id, part.outerHTML]));

function keepOpen(before, after) {
  const old = [before, ...before.querySelectorAll("details")].filter((e) => e.tagName === "DETAILS");
  const made = [after, ...after.querySelectorAll("details")].filter((e) => e.tagName === "DETAILS");
  made.forEach((e, i) => { if (old[i]) e.open = old[i].open; });
}

function update(fresh) {
  for (const part of fresh.querySelectorAll(PARTS)) {
    const text = part.outerHTML;
    if (last.get(part.id) === text) continue;
    last.set(part.id, text);
    const here = document.getElementById(part.id);
    const made = document.importNode(part, true);
    if (here) {
      keepOpen(here, made);
      here.replaceWith(made);
    } else if (made.matches("details.attempt")) {
      document.getElementById("attempts").append(made);
    }
  }
  document.title = fresh.title;
}

async function look() {
  if (asking) return;
  asking = true;
  try {
    const answer = await fetch(location.pathname, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (answer.ok) {
      tag = answer.headers.get("ETag");
      update(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    document.body.classList.toggle("lost", !answer.ok && answer.status !== 304);
  } catch {
    document.body.classList.add("lost"); // the server has gone; it may come back
  } finally {
    asking = false;
  }
}

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const said = document.getElementById("answer");
  try {
    const answer = await fetch(form.action, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    said.textContent = answer.ok ? "Done." : await answer.text();
    if (answer.ok && form.matches(".say")) form.reset();
  } catch {
    said.textContent = "The server does not answer.";
  }
  await look();
});

setInterval(() => { if (!document.hidden) look(); }, EVERY);
