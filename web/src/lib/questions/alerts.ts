/** Counts the open questions for the navigation, and tells people of new ones while the tab is in the background. */
import '../page-messages'
import type { QuestionInfo } from '../api/schema'
import { language, t } from '../i18n.svelte'
import { openQuestions } from './question-list.svelte'
import { questionTitle, whereText } from './question-text'
import { waiting } from './waiting.svelte'

const notifications = new Map<string, Notification>()
/** The questions that were there before; null before the list was loaded. */
let known: Set<string> | null = null

/** Begin; `newIn` is the session that has just asked something, if that is why. */
export function startAlerts(newIn: string | null): void {
  openQuestions.follow((open) => {
    waiting.count = open.length ? `${open.length}${openQuestions.next ? '+' : ''}` : ''
    if (openQuestions.loaded) noteNew(open, newIn)
    showInTitle()
  })
  document.addEventListener('visibilitychange', showInTitle)
  void openQuestions.load()
}

/** Whether this browser can notify; null if it cannot, or not on a page without https. */
export function notificationPermission(): NotificationPermission | null {
  return 'Notification' in window && isSecureContext ? Notification.permission : null
}

function noteNew(open: QuestionInfo[], newIn: string | null): void {
  const before = known ?? new Set(open.filter((each) => each.session_id !== newIn).map((each) => each.id))
  known = new Set(open.map((each) => each.id))
  for (const [id, shown] of notifications) {
    if (known.has(id)) continue
    shown.close()
    notifications.delete(id)
  }
  if (!document.hidden || notificationPermission() !== 'granted') return
  for (const each of open.filter(({ id }) => !before.has(id))) notify(each)
}

function notify(question: QuestionInfo): void {
  try {
    // All tabs use the same tag: one notification is shown.
    const shown = new Notification(questionTitle(question), {
      body: question.where ? whereText(question.where) : t('state.asks'),
      tag: question.id,
      lang: language(),
      icon: '/icon.svg',
    })
    shown.onclick = () => {
      window.focus()
      waiting.open(question.session_id)
      shown.close()
    }
    notifications.set(question.id, shown)
  } catch {
    // Some browsers on phones have notifications only for service workers: the title must be enough.
  }
}

/** Begin the title of a tab in the background with the number of open questions. */
function showInTitle(): void {
  const plain = document.title.replace(/^\(\d+\+?\) /, '')
  const title = document.hidden && waiting.count ? `(${waiting.count}) ${plain}` : plain
  if (title !== document.title) document.title = title
}
