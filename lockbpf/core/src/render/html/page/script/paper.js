// Pages on paper. Comes last: the page is built by then.

/** What is folded up on the screen is open on paper, and folded up again afterwards. */
function unfold(printed) {
  document.querySelectorAll(printed ? 'details:not([open])' : 'details.unfolded').forEach((one) => {
    one.open = printed;
    one.classList.toggle('unfolded', printed);
  });
}

// Not when the medium changes: pages have been counted by then, and what is longer than that would be cut off.
window.addEventListener('beforeprint', () => unfold(true));
window.addEventListener('afterprint', () => unfold(false));
if (matchMedia('print').matches) unfold(true);
