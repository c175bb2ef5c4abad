// Requests to the server, and hooks around them.
import { useCallback, useEffect, useRef, useState } from "./html.mjs";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let onSignedOut = () => {};
export const setSignedOut = (action) => { onSignedOut = action; };

const read = async (response) => {
  const body = await response.json().catch(() => ({ error: `The server answered with status ${response.status}` }));
  if (response.ok) return body;
  if (response.status === 401) onSignedOut();
  throw new ApiError(response.status, body.error || `The server answered with status ${response.status}`);
};

const send = (path, options) => fetch(path, options).catch(() => { throw new ApiError(0, "The server cannot be reached"); });

// The address of a resource, without the parameters that are not set.
export const address = (path, parameters = {}) => {
  const set = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return set.length ? `${path}?${new URLSearchParams(set)}` : path;
};

export const get = async (path, parameters) => read(await send(address(path, parameters), {}));

export const post = async (path, body = {}, options = {}) => read(await openPost(path, body, options));

export const openPost = (path, body, options = {}) =>
  send(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), ...options });

// The answer to a GET; what was shown stays until the next answer is there, so that nothing jumps.
export const useGet = (path, parameters) => {
  const target = path && address(path, parameters);
  const [state, setState] = useState({ data: null, error: null, target: null });
  const current = useRef(target);
  current.current = target;
  const load = useCallback(async () => {
    if (!target) return;
    try {
      const data = await get(target);
      if (current.current === target) setState({ data, error: null, target });
    } catch (error) {
      if (current.current === target) setState((old) => ({ ...old, error: error.message, target }));
    }
  }, [target]);
  useEffect(() => { load(); }, [load]);
  return { data: state.data, error: state.error, isCurrent: state.target === target, reload: load };
};
