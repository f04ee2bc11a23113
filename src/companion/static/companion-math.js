// Typesets the formulas far from the window when the page is open and the browser has nothing to do:
// for those who search, jump, print, or listen to the page.
window.companionFormulas = new Promise((done) => {
  addEventListener("load", async () => {
    await window.MathJax?.startup?.promise;
    const page = window.MathJax?.startup?.document;
    const idle = window.requestIdleCallback ?? ((action) => setTimeout(action, 500));
    idle(() => done(page?.lazyTypesetAll?.()));
  });
});
