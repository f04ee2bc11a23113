// Typesets the formulas far from the window when the page is open and the browser has nothing to do,
// or a second later: for those who search, jump, print, or listen to the page.
window.companionFormulas = new Promise((done) => {
  addEventListener("load", async () => {
    await window.MathJax?.startup?.promise;
    const page = window.MathJax?.startup?.document;
    const idle = window.requestIdleCallback ?? ((action, {timeout}) => setTimeout(action, timeout));
    // a page that moves on a slow device never has nothing to do
    idle(() => done(page?.lazyTypesetAll?.()), {timeout: 1000});
  });
});
