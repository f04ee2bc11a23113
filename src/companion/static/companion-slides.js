// Starts the slides once their formulas are typeset: hidden slides have no size to typeset them in.
(async () => {
  document.documentElement.classList.add("typesetting");
  const begun = new Promise((done) => addEventListener("load", done));
  if (document.querySelector(".math")) {
    await begun;
    await MathJax.startup.promise;
  }
  document.documentElement.classList.remove("typesetting");
  await Reveal.initialize({
    width: 1280,
    height: 720,
    margin: 0.04,
    center: false,
    hash: true,
    slideNumber: "c/t",
    transition: "none",
    plugins: [RevealNotes],
  });
})();
