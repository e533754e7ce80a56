"use strict";
const page = document.documentElement;
const started = performance.now();
window.addEventListener("error", (event) => { page.dataset.error = event.message; });
page.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
