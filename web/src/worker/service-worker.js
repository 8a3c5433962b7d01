// Lets the application open without a network, and notifies of questions. It caches only the application's own files:
// requests under /api, the login and downloads are never touched.
const SHELL = '{shell}'
const CACHE = 'sessionary-{version}'

self.addEventListener('install', (event) => {
  event.waitUntil(
    caches
      .open(CACHE)
      .then((cache) => cache.addAll(SHELL))
      .then(() => self.skipWaiting()),
  )
})

self.addEventListener('activate', (event) => {
  event.waitUntil(
    caches
      .keys()
      .then((names) => Promise.all(names.filter((name) => name !== CACHE).map((name) => caches.delete(name))))
      .then(() => self.clients.claim()),
  )
})

self.addEventListener('fetch', (event) => {
  const { request } = event
  const { origin, pathname } = new URL(request.url)
  if (request.method !== 'GET' || origin !== self.location.origin) return
  if (pathname.startsWith('/api/') || pathname.startsWith('/login')) return
  // Pages come from the server while it is reachable, so that a new version is seen at once.
  if (request.mode === 'navigate') event.respondWith(fetch(request).catch(() => caches.match('/')))
  else if (SHELL.includes(pathname)) event.respondWith(caches.match(pathname).then((kept) => kept ?? fetch(request)))
})

// Notifications of questions. The server sends what happened; the words are here, by language.
const WORDS = '{words}'
const QUESTIONS = '/questions'
const ANSWER_MS = 1000

self.addEventListener('push', (event) => event.waitUntil(notify(event.data ? event.data.json() : { test: true })))

self.addEventListener('notificationclick', (event) => {
  event.notification.close()
  event.waitUntil(open(event.notification.data?.session))
})

self.addEventListener('pushsubscriptionchange', (event) => event.waitUntil(subscribeAgain(event)))

async function notify(data) {
  const words = WORDS[data.language] ?? WORDS.en
  const tag = data.id ?? 'test'
  const isDecided = data.state && data.state !== 'open'
  // Safari ends the subscription of a page that shows nothing, so what nobody needs to see is closed again.
  await self.registration.showNotification(title(data, words), {
    body: isDecided ? outcome(data, words) : data.test ? words['push.testText'] : whereFrom(data, words),
    tag,
    lang: data.language,
    icon: '/icon.svg',
    // It replaces the one that asked.
    silent: isDecided,
    renotify: data.reminder === true,
    data: { session: data.session_id },
  })
  if (data.id && (await isRead(data.session_id)))
    for (const shown of await self.registration.getNotifications({ tag })) shown.close()
}

function title({ test, kind, tool, text }, words) {
  if (test) return words['push.testTitle']
  return kind === 'approval' ? fill(words['question.mayRun'], { tool }) : text
}

function whereFrom({ where }, words) {
  if (where === 'the workbench') return words['question.workbench']
  return where || words['state.asks']
}

function outcome({ state, kind, decision, by }, words) {
  if (state !== 'answered') return words[`question.${state}`]
  const who = by === 'The owner' ? words['question.owner'] : by
  const key = decision === 'deny' ? 'question.denied' : kind === 'approval' ? 'question.approved' : 'push.answered'
  return fill(words[key], { who })
}

function fill(text, values) {
  return text.replace(/\{(\w+)\}/g, (_, name) => values[name])
}

// The address of a window is not known here once its page has changed it: the page itself answers.
/** Whether somebody looks at a window that shows the question. */
async function isRead(session) {
  const focused = (await windows()).filter((each) => each.focused)
  return (await Promise.all(focused.map((each) => ask(each, { isShown: session })))).includes(true)
}

function windows() {
  return self.clients.matchAll({ type: 'window', includeUncontrolled: true })
}

/** Show a session, or the page of questions: in the window that was used last, if there is one. */
async function open(session) {
  const path = session ? `/s/${session}` : QUESTIONS
  const [found] = await windows()
  if (!found) return self.clients.openWindow(path)
  await found.focus()
  // A page that opens the session by itself loads nothing again.
  if (session && (await ask(found, { openSession: session }))) return found
  return found.navigate(path).catch(() => self.clients.openWindow(path))
}

/** Ask a page something; false if it does not answer. */
function ask(page, question) {
  return new Promise((done) => {
    const { port1, port2 } = new MessageChannel()
    port1.onmessage = ({ data }) => done(data)
    setTimeout(() => done(false), ANSWER_MS)
    page.postMessage(question, [port2])
  })
}

/** The browser has replaced its subscription, or wants a new one. */
async function subscribeAgain({ oldSubscription, newSubscription }) {
  const { available, public_key, items } = await api('GET', '/push')
  if (!available) return
  const name = oldSubscription && (await fingerprint(oldSubscription.endpoint))
  const before = items.find((each) => each.endpoint_sha256 === name)
  // One that was removed stays removed.
  if (!before) return
  const options = { userVisibleOnly: true, applicationServerKey: public_key }
  const made = newSubscription ?? (await self.registration.pushManager.subscribe(options))
  const { endpoint, keys } = made.toJSON()
  const spoken = self.navigator.language
  const language = before?.language ?? Object.keys(WORDS).find((each) => spoken.split('-')[0] === each.split('-')[0])
  const { csrf } = await api('GET', '/me')
  await api('POST', '/push/subscriptions', { endpoint, keys, language: language ?? 'en' }, csrf)
  if (before) await api('DELETE', `/push/subscriptions/${before.id}`, undefined, csrf)
}

async function fingerprint(text) {
  const hash = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text))
  return Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

async function api(method, path, body, csrf) {
  const headers = csrf ? { 'X-CSRF-Token': csrf, 'Content-Type': 'application/json' } : {}
  const response = await fetch(`/api/v1${path}`, { method, headers, body: body && JSON.stringify(body) })
  if (!response.ok) throw new Error(`${method} ${path} was answered with ${response.status}`)
  return response.json()
}
