// Puts a figure that the reader can turn or change in the place of its static drawing. Without this
// script, without WebGL (if it has three dimensions) and on paper the drawing stays. plotly lies beside this file and is loaded only
// when such a figure comes near the window.
(() => {
  const plotly = new URL("plotly.min.js", document.currentScript.src).href;
  let loading;

  const load = () =>
    (loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = plotly;
      script.onload = () => resolve(window.Plotly);
      script.onerror = reject;
      document.head.append(script);
    }));

  const ink = () => getComputedStyle(document.body).color;

  const hasWebGL = () => {
    const canvas = document.createElement("canvas");
    return Boolean(canvas.getContext("webgl2") ?? canvas.getContext("webgl"));
  };

  // Turns the camera about the vertical, and up or down short of the poles.
  const turned = (eye, across, up) => {
    const flat = Math.hypot(eye.x, eye.y);
    const far = Math.hypot(flat, eye.z);
    const around = Math.atan2(eye.y, eye.x) + across;
    const high = Math.max(-1.5, Math.min(1.5, Math.atan2(eye.z, flat) + up));
    return {
      x: far * Math.cos(high) * Math.cos(around),
      y: far * Math.cos(high) * Math.sin(around),
      z: far * Math.sin(high),
    };
  };

  const keys = {
    ArrowLeft: [-0.15, 0],
    ArrowRight: [0.15, 0],
    ArrowUp: [0, 0.15],
    ArrowDown: [0, -0.15],
  };

  // A button and a slider of the page's own: they work by keyboard, touch and screen reader.
  const controls = (Plotly, plot, frames) => {
    const bar = document.createElement("div");
    bar.className = "companion-interactive-controls";
    bar.innerHTML =
      '<button type="button">Play</button>' +
      '<input type="range" min="0" step="1" value="0" aria-label="What is shown"><output></output>';
    const [button, slider, label] = bar.children;
    slider.max = frames.length - 1;
    const still = { mode: "immediate", transition: { duration: 0 } };
    const show = (i) => {
      slider.value = i;
      label.textContent = frames[i].name;
      slider.setAttribute("aria-valuetext", frames[i].name);
      Plotly.animate(plot, [frames[i].name], { ...still, frame: { duration: 0, redraw: true } });
    };
    let timer;
    const stop = () => {
      clearInterval(timer);
      timer = undefined;
      button.textContent = "Play";
    };
    button.addEventListener("click", () => {
      if (timer) return stop();
      if (Number(slider.value) === frames.length - 1) show(0);
      button.textContent = "Pause";
      timer = setInterval(() => {
        const next = Number(slider.value) + 1;
        if (next < frames.length) show(next);
        else stop();
      }, 120);
    });
    slider.addEventListener("input", () => {
      stop();
      show(Number(slider.value));
    });
    label.textContent = frames[0].name;
    return bar;
  };

  const start = async (place) => {
    const figure = JSON.parse(place.querySelector("script").textContent);
    const turns = figure.data.some((trace) => trace.scene || trace.type?.endsWith("3d"));
    if (turns && !hasWebGL()) return;
    const Plotly = await load();
    const plot = document.createElement("div");
    plot.className = "companion-interactive-plot";
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", place.dataset.alt + (turns ? " Arrow keys turn it." : ""));
    place.append(plot);
    place.hidden = false;
    const layout = { ...figure.layout, autosize: true };
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)";
    layout.font = { ...layout.font, color: ink() };
    const config = { responsive: true, displaylogo: false, scrollZoom: false }; // the wheel is the page's
    await Plotly.newPlot(plot, figure.data, layout, config);
    if (figure.frames?.length) {
      await Plotly.addFrames(plot, figure.frames);
      place.append(controls(Plotly, plot, figure.frames));
    }
    place.parentElement.classList.add("companion-turns");
    Plotly.Plots.resize(plot);

    plot.addEventListener("keydown", (event) => {
      const scene = plot._fullLayout.scene;
      if (!keys[event.key] || !scene) return;
      event.preventDefault();
      Plotly.relayout(plot, { "scene.camera.eye": turned(scene.camera.eye, ...keys[event.key]) });
    });
    new MutationObserver(() => Plotly.relayout(plot, { "font.color": ink() })).observe(
      document.documentElement,
      { attributes: true, attributeFilter: ["data-theme"] },
    );
  };

  const near = new IntersectionObserver(
    (entries) => {
      for (const entry of entries.filter((e) => e.isIntersecting)) {
        near.unobserve(entry.target);
        start(entry.target.querySelector(".companion-interactive")).catch(() => {});
      }
    },
    { rootMargin: "600px" },
  );
  for (const place of document.querySelectorAll(".companion-interactive")) {
    near.observe(place.parentElement);
  }
})();
