"""Style and script of the HTML report; both stand in the page itself."""

from __future__ import annotations

__all__ = ["SCRIPT", "STYLE"]

STYLE = """
:root { color-scheme: light dark; --bg: #f5f6f8; --card: #fff; --text: #1d232b; --dim: #667080;
  --line: #dfe3e8; --error: #c0272d; --warning: #9a6200; --advice: #1763b6; --clean: #1d7a3d;
  --heat: 232, 119, 34; --mark: rgba(232, 119, 34, .16); --code: #fafbfc; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171c; --card: #1c2128; --text: #dde3ea;
  --dim: #8b96a5; --line: #333b46; --error: #ff7b72; --warning: #e0a63c; --advice: #6cb0ff;
  --clean: #56c77a; --mark: rgba(232, 119, 34, .26); --code: #171b21; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 76rem; background: var(--bg);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
h3 { font-size: .82rem; margin: 1rem 0 .3rem; color: var(--dim); font-weight: 600; }
code, pre, td.code, .mono { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  font-size: .86em; }
a { color: inherit; } a:hover { color: var(--advice); }
.dim { color: var(--dim); } .num { text-align: right; font-variant-numeric: tabular-nums; }
.card, .finding { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: 1rem 1.2rem; margin: 0 0 1rem; }
.finding { border-left: 4px solid var(--c); }
.error { --c: var(--error); } .warning { --c: var(--warning); } .advice { --c: var(--advice); }
.clean { --c: var(--clean); }
.badge { display: inline-block; border: 1px solid var(--c); color: var(--c); border-radius: 99px;
  padding: 0 .6em; font-size: .8rem; font-weight: 600; white-space: nowrap; }
.finding > header { display: flex; gap: .6rem; align-items: baseline; flex-wrap: wrap; }
.message { margin: .5rem 0; overflow-wrap: anywhere; white-space: pre-line; }
.parties { display: grid; gap: 0 1.2rem;
  grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); }
.parties > div { min-width: 0; }
pre { margin: 0; padding: .5rem .7rem; background: var(--code); border: 1px solid var(--line);
  border-radius: 6px; overflow-x: auto; tab-size: 4; line-height: 1.45; }
pre .at { display: inline-block; min-width: 100%; background: var(--mark); }
pre u { text-decoration: underline wavy var(--c); text-underline-offset: 3px; }
pre i { color: var(--dim); font-style: normal; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: .8rem 0 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; }
.cure { margin: .8rem 0 0; padding: .4rem .8rem; border-left: 3px solid var(--clean); }
.grids { display: flex; flex-wrap: wrap; gap: 0 2.5rem; }
.lanes { display: grid; grid-template-columns: repeat(16, 1.75rem); gap: 2px; }
.lanes span, .bank td, .bank th { font-size: .7rem; text-align: center;
  font-variant-numeric: tabular-nums; }
.lanes span { border: 1px solid var(--line); border-radius: 3px; line-height: 1.5rem;
  color: var(--dim); }
.lanes .on, .bank .on { background: var(--c); color: var(--card); border-color: var(--c);
  font-weight: 600; }
.scroll { overflow-x: auto; }
.bank { border-collapse: collapse; }
.bank td, .bank th { border: 1px solid var(--line); min-width: 1.7rem;
  height: 1.5rem; padding: 0 2px; }
.bank th { color: var(--dim); font-weight: 500; }
.bank th.many { color: var(--c); font-weight: 700; }
.bank tbody th { text-align: right; padding-right: .5rem; }
.listing { border-collapse: collapse; width: 100%; }
.listing th { text-align: left; color: var(--dim); font-size: .78rem; font-weight: 500; }
.listing th.num { text-align: right; }
.listing td, .listing th { padding: 0 .6rem; white-space: pre; line-height: 1.5;
  vertical-align: top; }
.listing td.num, .listing td.no { font-size: .78rem; color: var(--dim); }
.listing tr.ran td.heat { color: var(--text);
  background: rgba(var(--heat), calc(.06 + .6 * var(--h))); }
.listing tr.found td.code { background: var(--mark); }
.listing tr:target td { outline: 1px solid var(--advice); outline-offset: -1px; }
.listing td.code { tab-size: 4; width: 100%; }
.bar { display: block; width: 4.5rem; height: .5rem; margin-top: .4rem; border-radius: 2px;
  overflow: hidden; background: var(--line); }
.bar i { display: block; height: 100%; background: var(--advice); }
.bar.split i { background: var(--error); }
.tools { display: flex; gap: .5rem; flex-wrap: wrap; align-items: center; margin: 0 0 .8rem; }
button { font: inherit; font-size: .82rem; color: var(--text); background: var(--card);
  cursor: pointer; border: 1px solid var(--line); border-radius: 99px; padding: .1rem .8rem; }
button[aria-pressed=false] { opacity: .5; text-decoration: line-through; }
.counters { display: flex; gap: .2rem 2rem; flex-wrap: wrap; margin: .7rem 0 0; }
@media (max-width: 34rem) { body { padding: .8rem; }
  .parties { grid-template-columns: 1fr; } .lanes { grid-template-columns: repeat(8, 1.75rem); } }
.hide { display: none; }
"""

SCRIPT = """
document.querySelectorAll('button[data-hides]').forEach(function (button) {
  button.addEventListener('click', function () {
    var shown = button.getAttribute('aria-pressed') === 'false';
    button.setAttribute('aria-pressed', String(shown));
    document.querySelectorAll(button.dataset.hides).forEach(function (element) {
      element.classList.toggle('hide', !shown);
    });
  });
});
"""
