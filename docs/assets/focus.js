// The theme takes blocks of code that scroll out of the reach of the keyboard where nothing hovers, as on a telephone with
// a keyboard, and by that out of the reach of screen readers: they are put back.
for (const code of document.querySelectorAll("pre > code")) {
  const reach = () => code.hasAttribute("tabindex") || code.setAttribute("tabindex", "0");
  new MutationObserver(reach).observe(code, { attributeFilter: ["tabindex"] });
  reach();
}
