/** Counts the open questions for the navigation, and tells people of new ones while the tab is in the background. */
import '../page-messages'
import type { QuestionInfo } from '../api/schema'
import { language, t } from '../i18n.svelte'
import { openQuestions } from './question-list.svelte'
import { questionTitle, whereText } from './question-text'
import { waiting } from './waiting.svelte'

/** How the notification of a question is closed. */
const notifications = new Map<string, () => void>()
/** The questions that were there before; null before the list was loaded. */
let known: Set<string> | null = null

/** Begin; `newIn` is the session that has just asked something, if that is why. */
export function startAlerts(newIn: string | null): void {
  import('./push').then(({ keepSubscribed }) => keepSubscribed()).catch(() => undefined)
  openQuestions.follow((open) => {
    waiting.count = open.length ? `${open.length}${openQuestions.next ? '+' : ''}` : ''
    if (openQuestions.loaded) noteNew(open, newIn)
    showInTitle()
  })
  document.addEventListener('visibilitychange', showInTitle)
  if (notificationPermission()) navigator.serviceWorker.addEventListener('message', answerWorker)
  void openQuestions.load()
}

/** Whether this browser can notify; null if it cannot, or not on a page without https. */
export function notificationPermission(): NotificationPermission | null {
  return 'Notification' in window && isSecureContext ? Notification.permission : null
}

function noteNew(open: QuestionInfo[], newIn: string | null): void {
  const before = known ?? new Set(open.filter((each) => each.session_id !== newIn).map((each) => each.id))
  known = new Set(open.map((each) => each.id))
  for (const [id, close] of notifications) {
    if (known.has(id)) continue
    close()
    notifications.delete(id)
  }
  if (!document.hidden || notificationPermission() !== 'granted') return
  for (const each of open.filter(({ id }) => !before.has(id))) void notify(each)
}

async function notify(question: QuestionInfo): Promise<void> {
  const title = questionTitle(question)
  const options = {
    body: question.where ? whereText(question.where) : t('state.asks'),
    tag: question.id,
    lang: language(),
    icon: '/icon.svg',
  }
  try {
    // Shown by the service worker, it has the same place as one that comes by a push service.
    const worker = await navigator.serviceWorker.getRegistration()
    if (!worker?.active) throw new Error('There is no service worker.')
    await worker.showNotification(title, { ...options, data: { session: question.session_id } })
    notifications.set(question.id, () => void closeShown(worker, question.id))
  } catch {
    notifyFromTab(question, title, options)
  }
}

function notifyFromTab(question: QuestionInfo, title: string, options: NotificationOptions): void {
  try {
    // All tabs use the same tag: one notification is shown.
    const shown = new Notification(title, options)
    shown.onclick = () => {
      window.focus()
      waiting.open(question.session_id)
      shown.close()
    }
    notifications.set(question.id, () => shown.close())
  } catch {
    // Some browsers on phones have notifications only for service workers: the title must be enough.
  }
}

async function closeShown(worker: ServiceWorkerRegistration, tag: string): Promise<void> {
  for (const shown of await worker.getNotifications({ tag })) shown.close()
}

/** Answer the service worker: open a session whose notification was clicked, or say whether its question is shown. */
function answerWorker(event: MessageEvent<{ openSession?: string; isShown?: string }>): void {
  const { openSession, isShown } = event.data
  const isHere = ['/questions', `/s/${isShown}`].includes(location.pathname)
  event.ports[0]?.postMessage(openSession ? true : isHere && document.hasFocus())
  if (openSession) waiting.open(openSession)
}

/** Begin the title of a tab in the background with the number of open questions. */
function showInTitle(): void {
  const plain = document.title.replace(/^\(\d+\+?\) /, '')
  const title = document.hidden && waiting.count ? `(${waiting.count}) ${plain}` : plain
  if (title !== document.title) document.title = title
}
