draw_all();
page.dataset.milliseconds = String(Math.round(performance.now() - started));
page.dataset.ready = "yes";
