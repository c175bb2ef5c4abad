// Templates and hooks, in one place.
import { h, render, Fragment } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export { render, Fragment };
export { useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState, useCallback } from "./vendor/hooks.mjs";
export const html = htm.bind(h);
