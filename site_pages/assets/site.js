// What the theme adds to a page after it was loaded: text that scrolls is scrolled by keys, too, and buttons have names.
function complete() {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  document.querySelectorAll("nav.md-code__nav").forEach((buttons, number) => {
    buttons.ariaLabel = `Code ${number + 1}`;
  });
}

new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
window.addEventListener("resize", complete);
complete();
