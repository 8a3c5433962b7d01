/** Subscribes this browser to notifications of questions, which come also when no tab is open. */
import { get, send } from '../api/http'
import type { PushState, PushSubscriptionInfo } from '../api/schema'
import { language } from '../i18n.svelte'

/** Whether this browser can be notified while no tab is open. */
export function canSubscribe(): boolean {
  return isSecureContext && 'serviceWorker' in navigator && 'PushManager' in window && 'Notification' in window
}

export function loadPushState(): Promise<PushState> {
  return get<PushState>('/push')
}

/** The item of this browser, if it is subscribed. */
export async function findThisBrowser(items: readonly PushSubscriptionInfo[]): Promise<PushSubscriptionInfo | null> {
  if (!items.length || !canSubscribe()) return null
  const worker = await navigator.serviceWorker.getRegistration()
  const endpoint = (await worker?.pushManager.getSubscription())?.endpoint
  if (!endpoint) return null
  const name = await fingerprint(endpoint)
  return items.find((each) => each.endpoint_sha256 === name) ?? null
}

/** Subscribe this browser; the permission to notify was given. A subscription that the server does not know is replaced. */
export async function subscribe(state: PushState): Promise<void> {
  const { pushManager } = await readyWorker()
  // It may be for another key.
  await (await pushManager.getSubscription())?.unsubscribe()
  await tell(await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: state.public_key }))
}

/** Tell the server the language of this page, and with which login the subscription ends now. */
export async function refreshSubscription(): Promise<void> {
  const known = await (await readyWorker()).pushManager.getSubscription()
  if (known) await tell(known)
}

/** If this browser is subscribed, let that last as long as the login of now. */
export async function keepSubscribed(): Promise<void> {
  if (!canSubscribe() || Notification.permission !== 'granted') return
  const { available, items } = await loadPushState()
  if (available && (await findThisBrowser(items))) await refreshSubscription()
}

/** Notify a browser no more. */
export async function removeBrowser(id: string, isThis: boolean): Promise<void> {
  await send('DELETE', `/push/subscriptions/${id}`)
  if (isThis) await (await (await readyWorker()).pushManager.getSubscription())?.unsubscribe()
}

export async function sendTest(id: string): Promise<void> {
  await send('POST', `/push/subscriptions/${id}/test`)
}

async function tell(made: PushSubscription): Promise<void> {
  const { endpoint, keys } = made.toJSON()
  await send('POST', '/push/subscriptions', { endpoint, keys, language: language() })
}

async function readyWorker(): Promise<ServiceWorkerRegistration> {
  await navigator.serviceWorker.register('/sw.js')
  return navigator.serviceWorker.ready
}

async function fingerprint(text: string): Promise<string> {
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('')
}
