package agentrun

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"belay.dev/belay/api/v1alpha1"
)

// Bootstrap says whether the controller keeps what a namespace needs for the pods of runs.
type Bootstrap string

const (
	// BootstrapEnabled creates the runner's account, role and binding in every namespace that has a run, and mends them.
	BootstrapEnabled Bootstrap = "Enabled"
	// BootstrapDisabled leaves them to whoever manages the namespaces.
	BootstrapDisabled Bootstrap = "Disabled"
)

func namespaceLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "belay", "app.kubernetes.io/managed-by": "belay"}
}

// runnerAccount is the account of every run's pod in a namespace.
func runnerAccount(namespace string) *corev1.ServiceAccount {
	automount := false
	return &corev1.ServiceAccount{
		ObjectMeta:                   metav1.ObjectMeta{Namespace: namespace, Name: serviceAccount, Labels: namespaceLabels()},
		AutomountServiceAccountToken: &automount,
	}
}

// runnerRole is all that a runner may do: see ladders and health, read its run, report on it. Which run's status, and which
// part of it, is for an admission policy to say.
func runnerRole(namespace string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceAccount, Labels: namespaceLabels()},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"routeladders", "providerhealths"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"agentruns"}, Verbs: []string{"get"}},
			{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"agentruns/status"}, Verbs: []string{"patch"}},
		},
	}
}

func runnerRoleBinding(namespace string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceAccount, Labels: namespaceLabels()},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: serviceAccount},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: serviceAccount}},
	}
}

// ensureNamespace makes what a namespace lacks, and mends what is ours. An object of the name without our label is someone
// else's decision and stays as it is.
func (r *Reconciler) ensureNamespace(ctx context.Context, namespace string) error {
	if r.options.Bootstrap == BootstrapDisabled {
		return nil
	}
	key := client.ObjectKey{Namespace: namespace, Name: serviceAccount}
	if err := r.client.Get(ctx, key, &corev1.ServiceAccount{}); apierrors.IsNotFound(err) {
		if err := r.createUnlessThere(ctx, runnerAccount(namespace)); err != nil {
			return err
		}
	} else if err != nil {
		return fmt.Errorf("reading service account %s: %w", key, err)
	}
	role, want := &rbacv1.Role{}, runnerRole(namespace)
	switch err := r.client.Get(ctx, key, role); {
	case apierrors.IsNotFound(err):
		if err := r.createUnlessThere(ctx, want); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("reading role %s: %w", key, err)
	case !equality.Semantic.DeepEqual(role.Rules, want.Rules):
		role.Rules = want.Rules
		if err := r.client.Update(ctx, role, client.FieldOwner(v1alpha1.FieldManagerAgentRun)); err != nil {
			return fmt.Errorf("mending role %s: %w", key, err)
		}
	}
	if err := r.client.Get(ctx, key, &rbacv1.RoleBinding{}); apierrors.IsNotFound(err) {
		return r.createUnlessThere(ctx, runnerRoleBinding(namespace))
	} else if err != nil {
		return fmt.Errorf("reading role binding %s: %w", key, err)
	}
	return nil
}

func (r *Reconciler) createUnlessThere(ctx context.Context, obj client.Object) error {
	err := r.client.Create(ctx, obj, client.FieldOwner(v1alpha1.FieldManagerAgentRun))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	return nil
}
