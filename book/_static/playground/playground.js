// Tokens on the circle and on the sphere, live in the reader's browser.
//
// First the mathematics, pure functions that mirror src/tokensphere and are tested against it
// (tests/site/test_playground.py); then the state and its link; then what is seen.
//
// This is a classic script that leaves one name, `playground`, and not an ES module: a book opened
// from a folder (file://) has an opaque origin, and Chromium refuses to load modules there.
//
// Tokens x are n unit vectors of d numbers, one after the other in a Float64Array.
(() => {
  "use strict";

  // ---- Mathematics ------------------------------------------------------------------------

  // <x_i, x_j>; here and below, in two dimensions the third number is left out.
  const overlap = (x, d, i, j) => {
    const plane = x[i * d] * x[j * d] + x[i * d + 1] * x[j * d + 1];
    return d === 3 ? plane + x[i * d + 2] * x[j * d + 2] : plane;
  };

  // sum_j w_ij x_j and sum_j w_ij with w_ij = exp(beta (<x_i, x_j> - 1)), which is never large.
  // Nearly all the time is spent here: hence plain numbers, and each pair once for both.
  const sums = (x, n, d, beta) => {
    const moment = new Float64Array(n * d);
    const mass = new Float64Array(n);
    const deep = d === 3;
    for (let i = 0; i < n; i++) {
      const at = i * d;
      const [a, b, c] = [x[at], x[at + 1], deep ? x[at + 2] : 0];
      const own = Math.exp(beta * (a * a + b * b + c * c - 1));
      let [total, u, v, w] = [own, own * a, own * b, own * c];
      for (let j = 0, to = 0; j < i; j++, to += d) {
        const p = x[to];
        const q = x[to + 1];
        const r = deep ? x[to + 2] : 0;
        const weight = Math.exp(beta * (a * p + b * q + c * r - 1));
        total += weight;
        u += weight * p;
        v += weight * q;
        w += weight * r;
        mass[j] += weight;
        moment[to] += weight * a;
        moment[to + 1] += weight * b;
        if (deep) moment[to + 2] += weight * c;
      }
      mass[i] += total;
      moment[at] += u;
      moment[at + 1] += v;
      if (deep) moment[at + 2] += w;
    }
    return { moment, mass };
  };

  const normalize = (x, n, d) => {
    for (let i = 0; i < n; i++) {
      const length = Math.sqrt(overlap(x, d, i, i));
      for (let k = 0; k < d; k++) x[i * d + k] /= length;
    }
    return x;
  };

  // dx_i/dt = P_i sum_j A_ij x_j: A sums to one for "softmax", is e^{beta <x_i, x_j>} / n for
  // "unnormalized"; P_i v = v - <x_i, v> x_i.
  const velocity = (x, n, d, beta, kind) => {
    const { moment: v, mass } = sums(x, n, d, beta);
    for (let i = 0; i < n; i++) {
      const factor = kind === "softmax" ? 1 / mass[i] : Math.exp(beta) / n;
      let along = 0;
      for (let k = 0; k < d; k++) {
        v[i * d + k] *= factor;
        along += v[i * d + k] * x[i * d + k];
      }
      for (let k = 0; k < d; k++) v[i * d + k] -= along * x[i * d + k];
    }
    return v;
  };

  // One step of length h by the classical Runge-Kutta method of order 4, then back to the sphere.
  const flowStep = (x, n, d, beta, kind, h) => {
    const ahead = (v, by) => x.map((value, i) => value + by * v[i]);
    const a = velocity(x, n, d, beta, kind);
    const b = velocity(ahead(a, h / 2), n, d, beta, kind);
    const c = velocity(ahead(b, h / 2), n, d, beta, kind);
    const e = velocity(ahead(c, h), n, d, beta, kind);
    const next = x.map((value, i) => value + (h / 6) * (a[i] + 2 * b[i] + 2 * c[i] + e[i]));
    return normalize(next, n, d);
  };

  // One random layer: x_i <- N(x_i + sqrt(h) V y_i), y_i = sum_j A_ij x_j with softmax weights.
  // V is d x d by rows: one for all tokens, or n of them, one for each.
  const layerStep = (x, n, d, beta, h, V) => {
    const { moment, mass } = sums(x, n, d, beta);
    const own = V.length > d * d ? d * d : 0; // how far the next token's V is
    const next = Float64Array.from(x);
    for (let i = 0; i < n; i++) {
      const scale = Math.sqrt(h) / mass[i];
      for (let k = 0; k < d; k++) {
        let image = 0;
        for (let l = 0; l < d; l++) image += V[i * own + k * d + l] * moment[i * d + l];
        next[i * d + k] += scale * image;
      }
    }
    return normalize(next, n, d);
  };

  // Mean of exp(beta (<x_i, x_j> - 1)) over all pairs: the energy, where a single cluster has 1.
  const relativeEnergy = (x, n, d, beta) => {
    let total = n; // every token with itself
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < i; j++) total += 2 * Math.exp(beta * (overlap(x, d, i, j) - 1));
    }
    return total / (n * n);
  };

  // sum_ij exp(beta <x_i, x_j>) / (2 beta n^2), for beta > 0.
  const energy = (x, n, d, beta) =>
    (Math.exp(beta) / (2 * beta)) * relativeEnergy(x, n, d, beta);

  // Share of the pairs i < j in each of `bins` equal parts of [-1, 1].
  const overlapHistogram = (x, n, d, bins) => {
    const share = new Float64Array(bins);
    const one = 2 / (n * (n - 1));
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < i; j++) {
        const place = Math.floor(((overlap(x, d, i, j) + 1) / 2) * bins);
        share[Math.max(0, Math.min(bins - 1, place))] += one;
      }
    }
    return share;
  };

  // Sizes of the groups, the largest first: a group has a first token, and all those left over by
  // the groups before it that are within the angle `tol` of that one.
  const groupSizes = (x, n, d, tol) => {
    const sizes = [];
    const near = Math.cos(tol);
    let left = [...Array(n).keys()];
    while (left.length) {
      const first = left[0];
      const rest = left.filter((other) => other !== first && overlap(x, d, first, other) < near);
      sizes.push(left.length - rest.length);
      left = rest;
    }
    return sizes.sort((a, b) => b - a);
  };

  // Mean of exp(beta <x, y>) over uniform y: how much faster "unnormalized" is from an even start.
  const meanWeight = (beta, d) => {
    if (d === 3) return beta < 1e-4 ? 1 : Math.sinh(beta) / beta;
    let total = 0; // the trapezoidal rule is exact to rounding for so smooth a periodic function
    for (let k = 0; k < 64; k++) total += Math.exp(beta * Math.cos((Math.PI * k) / 32)) / 64;
    return total;
  };

  // ---- Chance -----------------------------------------------------------------------------

  // Numbers from a seed: Marsaglia's xorshift on 128 bits, and normals in pairs by Box and Muller.
  const generator = (seed) => {
    const s = [seed >>> 0, 0x9e3779b9, 0x243f6a88, 0xb7e15162];
    const bits = () => {
      let t = s[3];
      t ^= t << 11;
      t ^= t >>> 8;
      s.copyWithin(1, 0);
      t ^= s[1] ^ (s[1] >>> 19);
      s[0] = t;
      return t >>> 0;
    };
    for (let i = 0; i < 64; i++) bits(); // neighbouring seeds forget each other
    const uniform = () => (bits() + 0.5) / 2 ** 32; // never 0, so that it has a logarithm
    let spare;
    const normal = () => {
      if (spare !== undefined) {
        const kept = spare;
        spare = undefined;
        return kept;
      }
      const radius = Math.sqrt(-2 * Math.log(uniform()));
      const angle = 2 * Math.PI * uniform();
      spare = radius * Math.sin(angle);
      return radius * Math.cos(angle);
    };
    const normals = (count) => Float64Array.from({ length: count }, normal);
    return { uniform, normal, normals };
  };

  // "random": independent and uniform. "even": at equal spacing (on the sphere along a spiral that
  // turns by the golden angle), each token then pushed by a thousandth.
  const startTokens = (n, d, start, random) => {
    if (start === "random") return normalize(random.normals(n * d), n, d);
    const x = random.normals(n * d).map((push) => 1e-3 * push);
    const golden = Math.PI * (3 - Math.sqrt(5));
    for (let i = 0; i < n; i++) {
      const angle = d === 2 ? (2 * Math.PI * i) / n : golden * i;
      const height = d === 2 ? 0 : 1 - (2 * i + 1) / n;
      const flat = Math.sqrt(1 - height * height);
      x[i * d] += flat * Math.cos(angle);
      x[i * d + 1] += flat * Math.sin(angle);
      if (d === 3) x[i * d + 2] += height;
    }
    return normalize(x, n, d);
  };

  // ---- State ------------------------------------------------------------------------------

  const DEFAULTS = {
    beta: 5, n: 240, d: 2, rule: "unnormalized", noise: "none", start: "even", speed: 3, seed: 1,
  };
  const RANGES = { beta: [0, 12], n: [2, 400], speed: [0.1, 100], seed: [0, 999999] };
  const CHOICES = {
    d: [2, 3],
    rule: ["softmax", "unnormalized"],
    noise: ["none", "common", "independent"],
    start: ["even", "random"],
  };

  // Seeds were chosen so that the run shows what it is named after: a demonstration, no evidence.
  const PRESETS = {
    "three-clusters": { label: "Three clusters", beta: 5, d: 2, start: "even", speed: 3, seed: 2 },
    "four-clusters": { label: "Four clusters", beta: 7, d: 2, start: "even", speed: 3, seed: 1 },
    "sphere-clusters": { label: "Clusters on a sphere", beta: 10, d: 3, n: 240, speed: 3 },
    "waiting": { label: "Long waits", beta: 9, d: 3, n: 150, rule: "softmax", start: "random", speed: 5 },
    "single-cluster": { label: "Single cluster", beta: 1, d: 3, n: 120, rule: "softmax", start: "random", speed: 1 },
    "antipodal-pair": { label: "Antipodal pair", beta: 4, d: 3, n: 48, noise: "common", start: "random", speed: 0.5 },
    "two-tokens": { label: "Two tokens", beta: 3, d: 3, n: 2, noise: "common", start: "random", speed: 0.5, seed: 3 },
    "independent-noise": { label: "Noise of one\u2019s own", beta: 4, d: 3, n: 100, noise: "independent", start: "random", speed: 0.5 },
  };
  const preset = (name) => valid({ ...DEFAULTS, ...PRESETS[name] });

  // Any object or text values into a valid state; what makes no sense becomes the default.
  const valid = (given) => {
    const state = {};
    for (const [name, usual] of Object.entries(DEFAULTS)) {
      if (name in RANGES) {
        const [low, high] = RANGES[name];
        const value = parseFloat(given[name]);
        state[name] = Number.isFinite(value) ? Math.min(high, Math.max(low, value)) : usual;
        if (name === "n" || name === "seed") state[name] = Math.round(state[name]);
      } else {
        state[name] = CHOICES[name].find((choice) => String(choice) === String(given[name])) ?? usual;
      }
    }
    return state;
  };

  const toLink = (state) => `#${new URLSearchParams(Object.entries(valid(state)))}`;

  // The state in a link's fragment, which may be a preset's name, or null if there is none in it.
  const fromLink = (fragment) => {
    const name = fragment.slice(1);
    if (Object.hasOwn(PRESETS, name)) return preset(name);
    return name.includes("beta=") ? valid(Object.fromEntries(new URLSearchParams(name))) : null;
  };

  // A run: tokens and time. The step depends on the state alone, never on the machine, so a link
  // repeats a run exactly.
  class Run {
    constructor(state) {
      this.state = valid(state);
      this.random = generator(this.state.seed);
      this.tokens = startTokens(this.state.n, this.state.d, this.state.start, this.random);
      this.time = 0;
    }

    // Units of the model's own time in one unit of the speed: as many that both rules are alike fast.
    get unit() {
      const { beta, d, rule, noise } = this.state;
      return noise === "none" && rule === "unnormalized" ? 1 / meanWeight(beta, d) : 1;
    }

    // Random layers are 1/128 thick. Without noise: half of the shortest time in which anything
    // can change, or less if a frame of the picture (1/60 s) is less.
    get stepLength() {
      const { beta, rule, noise, speed } = this.state;
      if (noise !== "none") return 1 / 128;
      const longest = rule === "softmax" ? 0.5 / (1 + beta) : 0.5 * Math.exp(-beta);
      return Math.min(longest, (speed * this.unit) / 60);
    }

    step() {
      const { n, d, beta, rule, noise } = this.state;
      const h = this.stepLength;
      if (noise === "none") this.tokens = flowStep(this.tokens, n, d, beta, rule, h);
      else {
        const V = this.random.normals(d * d * (noise === "common" ? 1 : n));
        this.tokens = layerStep(this.tokens, n, d, beta, h, V);
      }
      this.time += h;
    }
  }

  // ---- What is seen -----------------------------------------------------------------------

  // The colours of the book's figures (src/companion/_style.py), safe for the colour-blind.
  const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#aa3377", "#117733"];
  const BLUE = PALETTE[0];
  const ORANGE = PALETTE[1];
  const BINS = 40;
  const KEPT = 600; // points of the energy's curve
  const BUSY = 12; // milliseconds of a frame for steps: then time goes slower, and the same way

  const SLIDERS = `
    <div><label for="playground-beta">Inverse temperature β</label>
      <input id="playground-beta" name="beta" type="range" step="0.1"><output for="playground-beta"></output></div>
    <div><label for="playground-n">Tokens n</label>
      <input id="playground-n" name="n" type="range" step="1"><output for="playground-n"></output></div>
    <div><label for="playground-speed">Speed</label>
      <input id="playground-speed" name="speed" type="range" step="0.05"><output for="playground-speed"></output></div>`;
  const MENUS = `
    <div><label for="playground-d">Space</label>
      <select id="playground-d" name="d"><option value="2">circle, d = 2</option>
        <option value="3">sphere, d = 3</option></select></div>
    <div><label for="playground-rule">Attention</label>
      <select id="playground-rule" name="rule"><option value="softmax">softmax</option>
        <option value="unnormalized">unnormalised</option></select></div>
    <div><label for="playground-noise">Noise</label>
      <select id="playground-noise" name="noise"><option value="none">none</option>
        <option value="common">common: one V a layer</option>
        <option value="independent">independent: a V for each token</option></select></div>
    <div><label for="playground-start">Start</label>
      <select id="playground-start" name="start"><option value="even">even, hardly disturbed</option>
        <option value="random">random</option></select></div>`;
  const PAGE = `
    <div class="playground-presets playground-buttons" role="group" aria-label="Presets"></div>
    <div class="playground-views">
      <div class="playground-stage" role="group" tabindex="0"><canvas role="img"></canvas></div>
      <div class="playground-charts">
        <p id="playground-overlaps">Overlaps ⟨x<sub>i</sub>, x<sub>j</sub>⟩ of all pairs</p>
        <canvas role="img" aria-labelledby="playground-overlaps"></canvas>
        <p id="playground-energy">Energy (1 for a single cluster)</p>
        <canvas role="img" aria-labelledby="playground-energy"></canvas>
        <p class="playground-status"></p>
      </div>
    </div>
    <div class="playground-buttons" role="group" aria-label="Time">
      <button type="button" data-do="play">Play</button>
      <button type="button" data-do="step">Step</button>
      <button type="button" data-do="restart">Restart</button>
      <button type="button" data-do="seed">New start</button>
      <a data-do="link">Link to these settings</a>
    </div>
    <form class="playground-controls" aria-label="Settings">${SLIDERS}${MENUS}</form>`;

  const words = (number) => Number(number.toPrecision(3)).toString();

  // A canvas as large as it is shown, in the device's pixels; draws in those of the page.
  const prepare = (canvas) => {
    const ratio = globalThis.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) Object.assign(canvas, { width: w, height: h });
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px sans-serif";
    pen.globalAlpha = pen.lineWidth = 1;
    return { pen, width, height };
  };

  const disc = (pen, x, y, radius) => {
    pen.beginPath();
    pen.arc(x, y, radius, 0, 2 * Math.PI);
  };

  // Screen coordinates of a point of the sphere, turned about the vertical and then tilted.
  const projection = ({ around, tilt }) => {
    const [c, s, cosine, sine] = [Math.cos(around), Math.sin(around), Math.cos(tilt), Math.sin(tilt)];
    return (x, y, z) => {
      const away = c * y - s * x;
      return { right: c * x + s * y, up: cosine * z + sine * away, near: sine * z - cosine * away };
    };
  };

  class View {
    constructor(root) {
      this.root = root;
      this.live = document.createElement("div");
      this.live.className = "playground-live";
      this.live.innerHTML = PAGE;
      root.append(this.live);
      root.classList.add("playground-on");
      const find = (selector) => this.live.querySelector(selector);
      this.stage = find(".playground-stage");
      [this.picture, this.overlaps, this.curve] = this.live.querySelectorAll("canvas");
      this.status = find(".playground-status");
      this.form = find("form");
      this.buttons = Object.fromEntries(
        [...this.live.querySelectorAll("[data-do]")].map((b) => [b.dataset.do, b]),
      );
      this.eye = { around: 0.5, tilt: 0.4 };
      this.still = matchMedia("(prefers-reduced-motion: reduce)");
      this.onScreen = false;
      this.playing = false;
      this.prepareControls();
      this.prepareStage();
      this.watch();
      this.load(fromLink(location.hash) ?? preset("three-clusters"));
      this.play(!this.still.matches);
      this.follow();
    }

    // -- state

    get running() {
      return this.playing && this.onScreen && !document.hidden;
    }

    load(state) {
      this.run = new Run(state);
      this.history = [];
      this.every = 1; // frames between points of the energy's curve
      this.frames = this.due = 0;
      const { n, d } = this.run.state;
      const x = this.run.tokens;
      const turn = (i) => Math.atan2(x[i * d + 1], x[i * d]) / (2 * Math.PI) + 1;
      this.colours = Array.from({ length: n }, (_, i) => PALETTE[Math.floor(6 * turn(i)) % 6]);
      this.showControls();
      this.draw();
      this.describe();
    }

    // A control was moved. What decides the start starts anew; the rest goes on from where it is.
    change(name, value) {
      const state = valid({ ...this.run.state, [name]: value });
      if (["n", "d", "start", "seed"].includes(name)) this.load(state);
      else {
        this.run.state = state;
        this.due = 0;
        if (name === "beta") this.history = []; // another energy
        this.showControls();
        this.draw();
      }
      clearTimeout(this.timer); // browsers allow only so many changes of the address
      this.timer = setTimeout(() => history.replaceState(null, "", toLink(this.run.state)), 300);
    }

    play(on) {
      this.playing = on;
      this.buttons.play.textContent = on ? "Pause" : "Play";
      if (!on) this.describe();
      this.wake();
    }

    // -- controls

    prepareControls() {
      const presets = this.live.querySelector(".playground-presets");
      for (const [name, { label }] of Object.entries(PRESETS)) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = label;
        button.addEventListener("click", () => this.show(preset(name)));
        presets.append(button);
      }
      for (const [name, [low, high]] of Object.entries(RANGES)) {
        const input = this.form.elements[name];
        if (!input) continue;
        const scale = name === "speed" ? Math.log10 : Number;
        Object.assign(input, { min: scale(low), max: scale(high) });
      }
      this.form.addEventListener("submit", (event) => event.preventDefault());
      this.form.addEventListener("input", ({ target }) => {
        const value = target.name === "speed" ? words(10 ** Number(target.value)) : target.value;
        this.change(target.name, value);
      });
      const act = {
        play: () => this.play(!this.playing),
        step: () => this.stepOnce(),
        restart: () => this.load(this.run.state),
        seed: () => this.change("seed", (this.run.state.seed + 1) % (RANGES.seed[1] + 1)),
      };
      for (const [name, action] of Object.entries(act)) {
        this.buttons[name].addEventListener("click", action);
      }
      // Links in the text, which name a preset and without this script lead to its place only.
      for (const link of document.querySelectorAll("a[data-preset]")) {
        link.href = toLink(preset(link.dataset.preset));
        link.addEventListener("click", () => {
          if (link.hash === location.hash) this.follow(); // else the address changes
        });
      }
      addEventListener("hashchange", () => this.follow());
    }

    show(state) {
      this.load(state);
      history.replaceState(null, "", toLink(state));
      this.play(!this.still.matches);
    }

    follow() {
      const state = fromLink(location.hash);
      if (!state) return;
      this.show(state);
      this.root.scrollIntoView({ block: "start" });
    }

    showControls() {
      const { state } = this.run;
      for (const name of ["d", "rule", "noise", "start", "n", "beta"]) {
        this.form.elements[name].value = state[name];
      }
      const slider = this.form.elements.speed;
      slider.value = Math.log10(state.speed);
      const said = { beta: words(state.beta), n: String(state.n), speed: `${words(state.speed)} a second` };
      for (const [name, text] of Object.entries(said)) {
        this.form.elements[name].nextElementSibling.textContent = text;
      }
      slider.setAttribute("aria-valuetext", said.speed);
      // Random layers are softmax layers, here as in the book.
      this.form.elements.rule.disabled = state.noise !== "none";
      if (state.noise !== "none") this.form.elements.rule.value = "softmax";
      this.buttons.link.href = toLink(state);
      const turns = state.d === 3;
      this.stage.classList.toggle("playground-turns", turns);
      this.stage.setAttribute(
        "aria-label",
        `Tokens on the ${turns ? "sphere; arrow keys turn it" : "circle"}; space plays and pauses`,
      );
    }

    prepareStage() {
      const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      this.stage.addEventListener("keydown", (event) => {
        if (event.ctrlKey || event.altKey || event.metaKey) return;
        if (event.key === " ") this.play(!this.playing);
        else if (event.key in by && this.run.state.d === 3) this.turn(...by[event.key].map((s) => 0.12 * s));
        else return;
        event.preventDefault();
      });
      let held;
      this.stage.addEventListener("pointerdown", (event) => {
        this.stage.setPointerCapture(event.pointerId);
        held = event;
      });
      this.stage.addEventListener("pointermove", (event) => {
        if (this.run.state.d !== 3 || !this.stage.hasPointerCapture(event.pointerId)) return;
        const radius = 0.45 * this.picture.clientWidth;
        this.turn((event.clientX - held.clientX) / radius, (event.clientY - held.clientY) / radius);
        held = event;
      });
    }

    // The near side moves to the right, and down.
    turn(right, down) {
      this.eye.around -= right;
      this.eye.tilt = Math.max(-1.5, Math.min(1.5, this.eye.tilt + down));
      this.drawTokens();
    }

    // -- time

    watch() {
      new IntersectionObserver((entries) => {
        this.onScreen = entries.at(-1).isIntersecting;
        this.wake();
      }).observe(this.stage);
      document.addEventListener("visibilitychange", () => this.wake());
      this.still.addEventListener("change", ({ matches }) => matches && this.play(false));
      new ResizeObserver(() => this.draw()).observe(this.live);
      const themed = { attributes: true, attributeFilter: ["data-theme"] };
      new MutationObserver(() => this.draw()).observe(document.documentElement, themed);
    }

    wake() {
      if (!this.running || this.waiting) return;
      this.last = performance.now();
      this.waiting = requestAnimationFrame((now) => this.frame(now));
    }

    frame(now) {
      this.waiting = undefined;
      if (!this.running) return;
      const passed = Math.min(0.1, Math.max(0, now - this.last) / 1000);
      this.last = now;
      this.advance(passed, BUSY);
      this.waiting = requestAnimationFrame((next) => this.frame(next));
    }

    stepOnce() {
      this.play(false);
      this.advance(0.25, 300);
      this.describe();
    }

    // As many steps as `seconds` of watching are worth, but no more than `busy` milliseconds take.
    advance(seconds, busy) {
      const { run } = this;
      const end = performance.now() + busy;
      const h = run.stepLength;
      this.due += seconds * run.state.speed * run.unit;
      while (this.due >= h && performance.now() < end) {
        run.step();
        this.due -= h;
      }
      this.due = Math.min(this.due, h); // what could not be done is not made up for
      this.draw();
    }

    // -- pictures

    draw() {
      this.ink = getComputedStyle(this.root).color;
      this.drawTokens();
      this.drawOverlaps();
      this.drawEnergy();
      this.tell();
    }

    drawTokens() {
      const { pen, width } = prepare(this.picture);
      const radius = 0.45 * width;
      pen.translate(width / 2, width / 2);
      pen.strokeStyle = this.ink;
      if (this.run.state.d === 2) this.drawCircle(pen, radius);
      else this.drawSphere(pen, radius);
    }

    // Tokens on a ring; bars outside it say how many are where, as a share of all.
    drawCircle(pen, radius) {
      const { tokens: x, state: { n } } = this.run;
      const ring = 0.82 * radius;
      const sectors = 120;
      const share = new Float64Array(sectors);
      for (let i = 0; i < n; i++) {
        const turn = Math.atan2(x[2 * i + 1], x[2 * i]) / (2 * Math.PI) + 1;
        share[Math.round(turn * sectors) % sectors] += 1 / n;
      }
      pen.globalAlpha = 0.3;
      disc(pen, 0, 0, ring);
      pen.stroke();
      pen.globalAlpha = 0.55;
      pen.lineWidth = Math.max(2, (0.8 * 2 * Math.PI * ring) / sectors);
      share.forEach((part, s) => {
        if (!part) return;
        const angle = (2 * Math.PI * s) / sectors;
        const far = ring + 7 + 0.22 * radius * Math.min(1, 2 * part);
        pen.beginPath();
        pen.moveTo((ring + 7) * Math.cos(angle), -(ring + 7) * Math.sin(angle));
        pen.lineTo(far * Math.cos(angle), -far * Math.sin(angle));
        pen.stroke();
      });
      pen.globalAlpha = 0.8;
      for (let i = 0; i < n; i++) {
        pen.fillStyle = this.colours[i];
        disc(pen, ring * x[2 * i], -ring * x[2 * i + 1], 4.5);
        pen.fill();
      }
    }

    // What is near is large and opaque; what is behind is drawn first.
    drawSphere(pen, radius) {
      const { tokens: x, state: { n } } = this.run;
      const see = projection(this.eye);
      pen.globalAlpha = 0.4;
      disc(pen, 0, 0, radius);
      pen.stroke();
      for (let line = 0; line < 6; line++) {
        let before;
        for (let k = 0; k <= 48; k++) {
          const a = (Math.PI * k) / 24;
          const b = (Math.PI * line) / 3;
          // three meridians and three parallels
          const flat = line < 3 ? Math.cos(a) : Math.cos((line - 4) * 0.7);
          const along = line < 3 ? b : a;
          const high = line < 3 ? Math.sin(a) : Math.sin((line - 4) * 0.7);
          const here = see(flat * Math.cos(along), flat * Math.sin(along), high);
          if (before) {
            pen.globalAlpha = here.near > 0 ? 0.3 : 0.1;
            pen.beginPath();
            pen.moveTo(radius * before.right, -radius * before.up);
            pen.lineTo(radius * here.right, -radius * here.up);
            pen.stroke();
          }
          before = here;
        }
      }
      const seen = Array.from({ length: n }, (_, i) => ({ i, ...see(x[3 * i], x[3 * i + 1], x[3 * i + 2]) }));
      seen.sort((a, b) => a.near - b.near);
      for (const { i, right, up, near } of seen) {
        pen.fillStyle = this.colours[i];
        pen.globalAlpha = 0.6 + 0.35 * near;
        disc(pen, radius * right, -radius * up, 4.2 + 1.8 * near);
        pen.fill();
      }
    }

    drawOverlaps() {
      const { tokens, state: { n, d } } = this.run;
      const share = overlapHistogram(tokens, n, d, BINS);
      const { pen, width, height } = prepare(this.overlaps);
      const floor = height - 18;
      const tallest = Math.max(...share);
      pen.fillStyle = BLUE;
      share.forEach((part, k) => {
        const size = (floor - 4) * (part / tallest);
        pen.fillRect((k * width) / BINS + 0.5, floor - size, width / BINS - 1, size);
      });
      pen.fillStyle = pen.strokeStyle = this.ink;
      pen.fillRect(0, floor, width, 1);
      for (const [text, align, at] of [["−1", "left", 0], ["0", "center", width / 2], ["1", "right", width]]) {
        pen.textAlign = align;
        pen.fillText(text, at, height - 4);
      }
    }

    drawEnergy() {
      const { tokens, time, state: { n, d, beta } } = this.run;
      this.energy = relativeEnergy(tokens, n, d, beta);
      if (this.frames++ % this.every === 0) this.history.push([time, this.energy]);
      if (this.history.length > KEPT) { // every second point stays
        this.history = this.history.filter((_, k) => k % 2 === 0);
        this.every *= 2;
      }
      const { pen, width, height } = prepare(this.curve);
      const floor = height - 18;
      const first = this.history[0]?.[0] ?? 0;
      const span = time - first || 1;
      pen.strokeStyle = ORANGE;
      pen.lineWidth = 2;
      pen.beginPath();
      for (const [t, e] of [...this.history, [time, this.energy]]) {
        pen.lineTo(((t - first) / span) * width, floor - e * (floor - 4));
      }
      pen.stroke();
      pen.fillStyle = this.ink;
      pen.fillRect(0, floor, width, 1);
      pen.textAlign = "left";
      pen.fillText(`t = ${words(first)}`, 0, height - 4);
      pen.textAlign = "right";
      pen.fillText(words(time), width, height - 4);
    }

    // -- words

    tell() {
      const now = performance.now();
      if (this.running && now - (this.told ?? 0) < 250) return;
      this.told = now;
      const { tokens, time, state: { n, d } } = this.run;
      const sizes = groupSizes(tokens, n, d, 0.2);
      const groups =
        sizes.length > 8
          ? "spread out"
          : `${sizes.length} ${sizes.length === 1 ? "group" : "groups"}: ${sizes.join(" + ")}`;
      this.status.textContent = `t = ${words(time)} · ${groups} · energy ${words(this.energy)}`;
      if (now - (this.described ?? 0) > 5000) this.describe();
    }

    // For those who do not see the picture; seldom, as it may be read aloud.
    describe() {
      this.described = performance.now();
      const { n, d } = this.run.state;
      const place = d === 2 ? "circle" : "sphere";
      this.picture.setAttribute("aria-label", `${n} tokens on the ${place}. ${this.status.textContent}`);
    }
  }

  globalThis.playground = {
    velocity, flowStep, layerStep, energy, relativeEnergy, overlapHistogram, groupSizes, meanWeight,
    generator, startTokens, valid, toLink, fromLink, preset, Run, PRESETS, PALETTE,
  };

  const root = globalThis.document?.getElementById("playground-place");
  if (root) globalThis.playground.view = new View(root);
})();
