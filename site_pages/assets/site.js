// What the theme adds to a page after it was loaded: text that scrolls can be scrolled by keys, and buttons are no landmark.
function complete() {
  for (const box of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  for (const buttons of document.querySelectorAll("nav.md-code__nav")) buttons.role = "group";
}

new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
window.addEventListener("resize", complete);
complete();
